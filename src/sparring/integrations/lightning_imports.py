"""What the integration needs of Lightning, or the command that installs it."""

try:
    import accelerate as accelerate  # of the training engine
    from lightning.pytorch import Callback as Callback
    from lightning.pytorch import LightningModule as LightningModule
    from lightning.pytorch import Trainer as Trainer
    from lightning.pytorch.utilities import rank_zero_warn as rank_zero_warn
except ImportError as error:
    raise ImportError("this needs Lightning: pip install 'sparring[lightning]'") from error
