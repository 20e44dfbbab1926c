"""Why each finding of the checks matters, and what to do about it, for those who read a report."""

from __future__ import annotations

# The names of checks, with spaces between them -> advice.
_ADVICE = {
    "empty_splits": "Nothing can be read from it: look at --splits and at the inputs.",
    "rejected_inputs": "Rejects are missing from training: the splits section has the reasons.",
    "duplicates near_duplicates": "Copies weigh more than other records: --drop_near_duplicates keeps one of each.",
    "leaks near_leaks": (
        "Scores on these records are too good, because the model was trained on them: drop the copies with --drop_near_duplicates, or keep them together with --group_by."
    ),
    "groups_across_splits": "Scores are too good if the model knows the group: split with --group_by.",
    "contradictions": "A model cannot learn both labels: correct them, or drop the records.",
    "repeated_texts empty_texts few_letters": "Such texts teach little and may be placeholders: filter them with --map.",
    "constant_features": "It tells a model nothing: leave it out with columns=.",
    "identifiers": "A model may memorise it in place of learning: leave it out with columns=.",
    "missing_classes label_drift": "Scores of these classes say little: add records, or split with --stratify.",
    "unused_classes": "The model's output has classes that it never sees: look at the list of names.",
    "imbalance": "A model prefers the largest class: weigh the loss by class_weights() of readers.open(DIR).",
    "telling_numbers": (
        "A model may learn this number in place of the content: see whether the classes were recorded in different ways."
    ),
    "sorted_labels": "Neighbouring records are alike: read with shuffle=True.",
    "undecodable_pictures": "Training stops at them: write the dataset anew without these inputs.",
    "dark_pictures light_pictures flat_pictures blurry_pictures tiny_pictures": (
        "There is little to see in them: look at the records, and drop them if they are faults of the camera."
    ),
    "long_pictures": "A resize to a square distorts them, and a crop loses most of them.",
    "gray_pictures": "Colour models see fewer colours than they expect: convert all, or keep it in mind.",
    "wrong_encodings control_characters markup": "A tokenizer makes rare tokens of it: clean the texts with --map.",
    "empty_arrays": "Right for what a record may lack, such as boxes; else there is nothing to learn from: drop them.",
    "missing_values": "NaN spreads through a loss: fill, mask or drop these values.",
    "constant_channels dead_channels clipped_signals": (
        "A sensor was off, disconnected or saturated: drop these records, or mask the channel."
    ),
    "outlier_lengths outlier_levels outlier_sizes": (
        "A few records dominate padding or the scale of values: look at them, then cut or drop them."
    ),
    "unknown_tokens": "The model sees [UNK] in their place: use a larger --vocabulary_size or subwords.",
    "split_drift drift": "Scores on one are no measure of the other if they differ: see where each comes from.",
    "new_features missing_features changed_features changed_labels": (
        "A model that was trained on the other dataset may not fit this one."
    ),
}

ADVICE = {check: advice for checks, advice in _ADVICE.items() for check in checks.split()}
