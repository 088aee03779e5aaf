export * from "./scene/embedded";
