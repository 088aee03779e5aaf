import { mount } from "svelte";
import App from "./App.svelte";
import { drawer } from "./graph/drawer";
import "./page.css";

drawer.start();
mount(App, { target: document.body });
