"""The explorer's server: ``python -m torcheer.web PATH …`` shows recordings, watched runs and results in a browser.

It runs in a process of its own, reads files and never writes any, and answers with the dicts that ``views`` build.
Start it from Python with ``torcheer.explore``.
"""
