"""Documents of MongoDB: plain Python that executors run, and its Spark functions."""
