"""The samples a finished run has not won."""

from __future__ import annotations

from typing import Any

from sparring.lab.errors import UserError
from sparring.lab.runs.evaluate import Evaluator
from sparring.lab.runs.plan import Plan
from sparring.lab.runs.runner import cut
from sparring.losses.delta import delta_value


def hard_samples(plan: Plan) -> list[int]:
    """Indices of the training samples, as the run cut them, in which the run's best model leaves an opponent within δ."""
    config, data = plan.config, plan.data
    plan.folder.verify()
    model = data.kind.load_model(plan.folder.model, trust_remote_code=config.trust_remote_code)
    encoder = data.encoder(model.processor, top_k=plan.task.top_k)
    loss = config.make_loss(1, schedule=False)
    outcome = Evaluator(data.kind, encoder, cut(data.train, config.n_train), loss).outcome(model.net)
    delta: Any = loss.delta
    hard = [i for i, margin in enumerate(outcome.margins) if margin <= delta_value(delta)]
    if not hard:
        raise UserError(f"{plan.folder.path}: every training sample is won; fewer epochs leave some")
    return hard
