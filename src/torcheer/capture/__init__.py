"""The only rooms that run models. Each fills a record (``torcheer.record``)."""
