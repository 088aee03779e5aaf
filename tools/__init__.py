"""What the repository needs beside the package: checks, and programs that write pages and pictures."""
