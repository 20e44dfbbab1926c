"""Why each finding of the checks matters, and what to do about it, for readers of a report."""

from __future__ import annotations

# Names of checks, separated by spaces -> advice.
_ADVICE = {
    "empty_splits": "There is nothing to read: check --splits and the inputs.",
    "rejected_inputs": "Rejected inputs are missing from the dataset: the section on splits lists the reasons.",
    "duplicates near_duplicates": "Copies count more than other records: --drop_near_duplicates keeps one of each.",
    "leaks near_leaks": (
        "Scores on these records are too good, because the model was trained on copies: drop them with --drop_near_duplicates, or keep them in one split with --group_by."
    ),
    "groups_across_splits": "Scores are too good if the model has seen the group in training: split with --group_by.",
    "contradictions": "A model cannot learn both labels: correct them, or drop the records.",
    "repeated_texts empty_texts few_letters": "Such texts teach little and may be placeholders: filter them with --map.",
    "constant_features": "It carries no information: leave it out with columns=.",
    "identifiers": "A model may memorise it instead of learning: leave it out with columns=.",
    "missing_classes label_drift": "Scores for these classes mean little: add records, or split with --stratify.",
    "unused_classes": "The model's output has classes that it never sees: check the list of names.",
    "imbalance": "A model prefers the largest class: weight the loss by class_weights() of readers.open(DIR).",
    "telling_numbers": (
        "A model may learn this number instead of the content: check whether the classes were recorded in different ways."
    ),
    "sorted_labels": "Neighbouring records are alike: read with shuffle=True.",
    "undecodable_pictures": "Training stops at them: write the dataset again without these inputs.",
    "dark_pictures light_pictures flat_pictures blurry_pictures tiny_pictures": (
        "There is little to see in them: look at the records, and drop them if the camera is at fault."
    ),
    "long_pictures": "A resize to a square distorts them, and a crop loses most of them.",
    "gray_pictures": "They have no color, which a model for color pictures may rely on: drop or convert them if so.",
    "wrong_encodings control_characters markup": "They become rare tokens: clean the texts with --map.",
    "empty_arrays": "Correct for optional features, such as boxes; otherwise there is nothing to learn from: drop them.",
    "missing_values": "A single NaN makes the loss NaN: fill, mask or drop these values.",
    "constant_channels dead_channels clipped_signals": (
        "A sensor was off, disconnected or saturated: drop these records, or mask the channel."
    ),
    "outlier_lengths outlier_levels outlier_sizes": (
        "A few records dominate padding or the scale of values: look at them, then truncate or drop them."
    ),
    "unknown_tokens": "The model sees [UNK] instead: use a larger --vocabulary_size, or subwords.",
    "split_drift drift": "Scores on one may not hold for the other: find out where each comes from.",
    "new_features missing_features changed_features changed_labels": (
        "A model trained on the other dataset may not fit this one."
    ),
}

ADVICE = {check: advice for checks, advice in _ADVICE.items() for check in checks.split()}
