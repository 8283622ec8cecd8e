"""Schemas that people hand over: from a file's content to :class:`~airflow_cdc.model.source_schema.SourceSchema` objects."""
