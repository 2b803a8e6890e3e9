"""A user's script: a small BERT, made on the spot, taught by Hugging Face's Trainer which of its
texts have a certain word.
"""

import argparse
import json
import os

import numpy
from datasets import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

WORDS, WORD, LENGTH = 64, 7, 12


def texts(number, seed):
    """Half of them have the word."""
    random = numpy.random.default_rng(seed)
    tokens = random.integers(WORD + 1, WORDS, (number, LENGTH))
    labels = numpy.arange(number) % 2
    tokens[labels == 1, random.integers(0, LENGTH, number)[labels == 1]] = WORD
    return Dataset.from_dict(
        {"input_ids": tokens.tolist(), "attention_mask": numpy.ones_like(tokens).tolist(), "labels": labels.tolist()}
    )


def accuracy(prediction):
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--train_batch_size", type=int, default=32)
    parser.add_argument("--learning_rate", type=float, default=2e-3)
    parser.add_argument("--output_data_dir", default=os.environ["SM_OUTPUT_DATA_DIR"])
    parser.add_argument("--model_dir", default=os.environ["SM_MODEL_DIR"])
    given, _ = parser.parse_known_args()
    set_seed(0)
    # Without dropout, whose random numbers are each process's own: so any number of processes has
    # the same losses.
    config = BertConfig(
        vocab_size=WORDS,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=LENGTH,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    arguments = TrainingArguments(
        output_dir="/tmp/trainer",
        num_train_epochs=given.epochs,
        # Of one process; together they have the whole.
        per_device_train_batch_size=given.train_batch_size // int(os.environ.get("WORLD_SIZE", 1)),
        learning_rate=given.learning_rate,
        logging_steps=10,
        eval_strategy="epoch",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        # Labels are no tokens: a loss is that of a sample, however many processes there are.
        average_tokens_across_devices=False,
    )
    trainer = Trainer(
        model=BertForSequenceClassification(config),
        args=arguments,
        train_dataset=texts(640, 0),
        eval_dataset=texts(200, 1),
        compute_metrics=accuracy,
    )
    print(f"process {arguments.process_index} of {arguments.world_size} on {os.environ['SM_CURRENT_HOST']}", flush=True)
    trainer.train()
    evaluated = trainer.evaluate()
    if trainer.is_world_process_zero():
        print(f"eval_accuracy={evaluated['eval_accuracy']:.3f};")
        with open(os.path.join(given.output_data_dir, "history.json"), "w") as file:
            json.dump([entry["loss"] for entry in trainer.state.log_history if "loss" in entry], file)
    trainer.save_model(given.model_dir)
