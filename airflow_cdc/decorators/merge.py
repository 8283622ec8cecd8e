"""``@task.cdc_merge``: a merge whose tables a function names when the task runs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.common.compat.sdk import (
    AirflowFailException,
    AirflowSkipException,
    DecoratedOperator,
    TaskDecorator,
    context_merge,
    task_decorator_factory,
)

from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.operators.merge import CdcMergeOperator

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context


class CdcDecoratedMerge(DecoratedOperator, CdcMergeOperator):
    """The operator of ``@task.cdc_merge``.

    :param python_callable: returns globs of flow names, as a sequence of texts or one text with commas.
    :param kwargs: arguments of :class:`~airflow_cdc.operators.merge.CdcMergeOperator`, without ``tables``.
    """

    template_fields: Sequence[str] = tuple(dict.fromkeys((*DecoratedOperator.template_fields, *CdcMergeOperator.template_fields)))
    template_fields_renderers: ClassVar[dict[str, str]] = {
        **DecoratedOperator.template_fields_renderers,
        **CdcMergeOperator.template_fields_renderers,
    }
    custom_operator_name = "@task.cdc_merge"
    # The task's rendered fields show what the function returned.
    overwrite_rtif_after_execution = True

    def __init__(self, **kwargs: Any) -> None:
        if "tables" in kwargs:
            raise ConfigurationError(
                "@task.cdc_merge has an argument tables, and the function below it names the tables too.",
                next_step="Leave the argument out; or use CdcMergeOperator, if the tables are known beforehand.",
            )
        super().__init__(**kwargs)

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        """Ask the function for tables, and merge these.

        :raises AirflowSkipException: when it names none.
        :raises AirflowFailException: when it returns anything else than names. None does not mean every table.
        """
        context_merge(context, self.op_kwargs)
        asked = _asked(self.python_callable, len(self.op_args), context)
        self.tables = _names(self.python_callable(*self.op_args, **asked), self.python_callable.__name__)
        return CdcMergeOperator.execute(self, context)


def _asked(function: Callable[..., Any], positional: int, context: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a function asks for by name. Airflow's own function for it is no part of 3.1."""
    parameters = list(inspect.signature(function).parameters.values())[positional:]
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return dict(context)
    return {parameter.name: context[parameter.name] for parameter in parameters if parameter.name in context}


def _names(returned: Any, function: str) -> list[str]:
    names = returned.split(",") if isinstance(returned, str) else returned
    if not isinstance(names, (list, tuple, set)) or not all(isinstance(name, str) and name.strip() for name in names):
        raise AirflowFailException(
            f"{function} returned {returned!r:.200}, expected names of flows: a list, or one text with commas. "
            "Next step: return such names; for every flow return ['*'], for none []."
        )
    if not names:
        raise AirflowSkipException(f"{function} named no flow.")
    return [name.strip() for name in names]


def cdc_merge_task(python_callable: Callable[..., Any] | None = None, **kwargs: Any) -> TaskDecorator:
    """Make a task that merges the tables that a function names when the task runs.

    The function gets the context's values that it asks for by name, as with ``@task``, and other tasks' results as arguments. If it names
    no table, the task is skipped.

    :param python_callable: returns globs of flow names, as a sequence of texts or one text with commas.
    :param kwargs: arguments of :class:`~airflow_cdc.operators.merge.CdcMergeOperator`, without ``tables``.
    """
    return task_decorator_factory(python_callable=python_callable, decorated_operator_class=CdcDecoratedMerge, **kwargs)
