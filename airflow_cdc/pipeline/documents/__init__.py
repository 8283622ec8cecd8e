"""Documents of a document database: plain Python that executors run, and its Spark functions."""
