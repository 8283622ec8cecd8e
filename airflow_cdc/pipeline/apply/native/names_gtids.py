"""Look in a microbatch for streamed events that name their transaction, without Spark (DuckDB)."""

from __future__ import annotations

from airflow_cdc.model.archive.survey import are_values
from airflow_cdc.model.errors import first_line
from airflow_cdc.pipeline.apply.native.decode_sql import find_transaction
from airflow_cdc.pipeline.apply.native.handed_over import HandedOver, why_not_surveyed
from airflow_cdc.pipeline.decode.decode_events import Decoder
from airflow_cdc.pipeline.microbatch.microbatch_run import MicrobatchRun
from airflow_cdc.pipeline.native.connect_duckdb import connect_duckdb
from airflow_cdc.pipeline.native.fetched_files import is_fetched
from airflow_cdc.pipeline.native.record_lines import RecordLines, UnpairedError, fetch
from airflow_cdc.pipeline.survey.survey_natively import is_of_lines


def names_gtids(run: MicrobatchRun, decoder: Decoder) -> bool:
    """Return whether streamed events name their transaction; a microbatch that cannot be read any more proves nothing.

    :param run: of the microbatch that is searched, this one or an earlier one of the flow.
    :raises HandedOver: where only Spark reads its files.
    """
    import duckdb

    microbatch = run.microbatch
    files, unread = microbatch.files, f"whether the source has GTIDs is asked of microbatch {microbatch.number}, which only Spark reads"
    are_alike = len({not file.keys_path for file in files}) == 1 and not why_not_surveyed(microbatch.shapes, decoder.dialect)
    if microbatch.parts or not are_alike or not is_fetched(microbatch.archive) or not all(map(is_of_lines, files)):
        raise HandedOver(unread)
    try:
        fetched = fetch(microbatch.archive, files)
        with connect_duckdb() as connection:
            connection.register_filesystem(fetched)
            lines = RecordLines(fetched, files, are_values=are_values(microbatch.shapes))
            return bool(connection.execute(find_transaction(decoder, lines)).fetchall())
    except (OSError, duckdb.IOException):
        return False
    except (duckdb.Error, UnpairedError) as error:
        raise HandedOver(f"{unread}: {first_line(error)}") from error
