"""include: the steps of another playbook, here. Done when the playbook is read: the steps run under `ID.STEP`."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Union

import msgspec
from msgspec import Meta

from runbook.steps.base import Step


class Include(Step, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Run the steps of another playbook here, with inputs of its own.

    It sees none of our variables and steps: `with` gives it its inputs, `steps.<id>.<output>` reads what it declares under `outputs`.
    Its steps are called `<id>.<step>`, so that `server: up.server` names a launch in it. Looked for beside this file, in `lib` there,
    in `./playbooks`, in the user's folder, among those that come with runbook, then in installed packages.
    """

    TYPE: ClassVar[str] = "include"
    SHORTHAND: ClassVar[str | None] = "playbook"
    NEEDS_HOST: ClassVar[bool] = False
    RESULTS: ClassVar[dict[str, str]] = {"NAME": "the output of that name, for each that the playbook declares"}
    EXAMPLE: ClassVar[str] = "id: up\ninclude: {playbook: launch_sglang, with: {port: 8000}}"

    playbook: Annotated[str, Meta(description="a path, or the name of a playbook on the search path", min_length=1)]
    with_: Annotated[dict[str, Any], Meta(description="values of its inputs; expressions in them are ours")] = msgspec.field(
        name="with", default_factory=dict
    )
    hosts: Annotated[
        dict[str, Union[str, list[str]]],
        Meta(description="its roles as roles of ours [the include's `host`, else the role of the same name, else our only one]"),
    ] = {}
