"""Schemas that people hand over: from a file's content to :class:`~airflow_cdc.model.flow.source_schema.SourceSchema` objects."""
