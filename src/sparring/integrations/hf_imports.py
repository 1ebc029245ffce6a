"""What the integration needs of transformers, or the command that installs it."""

try:
    import accelerate as accelerate  # of the Trainer and of the training engine
    from transformers import Trainer as Trainer
    from transformers import TrainerCallback as TrainerCallback
    from transformers import TrainerControl as TrainerControl
    from transformers import TrainerState as TrainerState
    from transformers import TrainingArguments as TrainingArguments
    from transformers.trainer_utils import has_length as has_length
except ImportError as error:
    raise ImportError(
        "SparringTrainer needs transformers and accelerate: pip install 'sparring[hf]'"
    ) from error
