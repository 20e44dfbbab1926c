"""The flags of Beam: their names, and those that `--engine` sets. Beam itself is not imported here."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

Engine = Literal["direct", "prism", "flink", "spark", "dataflow"]

# The flags of Beam 2.77 with a value, and those without; a test compares them with the installed Beam.
_VALUES = """
    application_id artifact_endpoint artifact_port artifacts_dir autoscaling_algorithm azure_connection_string
    azure_managed_identity_client_id beam_plugin beam_plugins beam_services blob_service_endpoint
    bootstrap_servers cloud_build_machine_type create_from_snapshot dataflow_endpoint dataflow_job_file
    dataflow_kms_key dataflow_service_option dataflow_service_options default_sdk_harness_log_level
    direct_num_workers direct_runner_bundle_repeat direct_running_mode direct_test_splits
    disk_provisioned_iops disk_provisioned_throughput_mibps disk_size_gb disk_type docker_registry_push_url
    dry_run element_processing_timeout_minutes environment_cache_millis environment_config environment_option
    environment_options environment_type expansion_port experiment experiments extra_package extra_packages
    file_to_stage files_to_stage flexrs_goal flink_job_server_jar flink_master flink_version gbek
    gcp_oauth_scope gcp_oauth_scopes gcs_custom_audit_entries gcs_custom_audit_entry hdfs_host hdfs_port
    hdfs_user impersonate_service_account jar_cache_dir job_endpoint job_name job_port
    job_server_java_launcher job_server_jvm_properties job_server_jvm_property job_server_timeout
    kafka_streams_job_server_jar label labels machine_type maven_repository_url max_cache_memory_usage_mb
    max_num_workers max_parallelism min_cpu_platform network num_workers number_of_worker_harness_threads
    on_success_matcher output_executable_path parallelism pickle_library prebuild_sdk_container_base_image
    prebuild_sdk_container_engine prism_beam_version_override prism_location prism_log_kind prism_log_level
    profile_location profile_postprocess_interval_sec profile_sample_rate profile_temp_location
    profile_upload_interval_sec profiler_agent profiler_extra_arg profiler_extra_args profiler_extra_env_var
    profiler_extra_env_vars profiler_stop_after_sec project pubsub_root_url region requirements_cache
    requirements_file resource_hint resource_hints runner s3_access_key_id s3_api_version s3_endpoint_url
    s3_region_name s3_secret_access_key s3_session_token s3_verify sdk_container_image
    sdk_harness_container_image_overrides sdk_harness_log_level_overrides sdk_location sdk_worker_parallelism
    service_account_email setup_file spark_job_server_jar spark_master_url spark_rest_url spark_version
    staging_location subnetwork temp_location template_location transform_name_mapping type_check_additional
    type_check_strictness update_compatibility_version user_agent wait_until_finish_duration worker_disk_type
    worker_harness_container_image worker_machine_type worker_region worker_zone zone
"""

_SWITCHES = """
    allow_non_deterministic_key_coders allow_unsafe_triggers auto_unique_labels direct_embed_docker_python
    disable_beartype enable_artifact_caching enable_bucket_read_metric_counter
    enable_bucket_write_metric_counter enable_gcsio_blob_generation enable_hot_key_logging
    enable_streaming_engine exclude_infer_dataclass_field_type flink_submit_uber_jar
    force_cloudpickle_deterministic_coders hdfs_full_urls no_auth no_direct_runner_use_stacked_bundle
    no_gcsio_throttling_counter no_pipeline_type_check no_save_main_session no_use_public_ips
    no_wait_until_finish performance_runtime_type_check profile_cpu profile_memory profiler_stop_after_crash
    requirements_cache_only_sources runtime_type_check s3_disable_ssl save_main_session spark_submit_uber_jar
    streaming update use_public_ips use_transform_service
"""

BEAM_VALUES, BEAM_SWITCHES = frozenset(_VALUES.split()), frozenset(_SWITCHES.split())

# Engines behind a job service, which is named by --job_endpoint or started by the runner.
_WITH_JOB_SERVICE = ("prism", "flink", "spark")

_RUNNERS = {
    "dataflow": ["--runner=DataflowRunner"],
    "prism": ["--runner=PrismRunner"],
    # For Flink 2, Beam's default, Beam only has the translator for streaming pipelines.
    "flink": ["--runner=FlinkRunner", "--flink_version=1.20"],
    "spark": ["--runner=SparkRunner", "--spark_version=3"],
}

# How many milliseconds idle workers are kept: starting new ones for the next stage takes 3 to
# 4 s. A dead worker is kept as long, and until then every retry fails.
_IDLE_MILLISECONDS = 5_000

# Dataflow rejects names with other characters, and the pages of engines cut long ones.
_NOT_IN_A_NAME = re.compile(r"[^a-z0-9]+")
_MOST_OF_OUTPUT = 40


def job_name(job: str, output: str) -> str:
    """The name of a job on an engine, such as `beam-shards-text-data-shards-reviews`.

    Args:
        job: Which job it is, such as "text".
        output: The output directory; a long one is shortened to its end and a digest.
    """
    place = _NOT_IN_A_NAME.sub("-", output.lower()).strip("-")
    if len(place) > _MOST_OF_OUTPUT:
        digest = hashlib.sha256(output.encode("utf-8", "surrogateescape")).hexdigest()[:6]
        place = f"{place[7 - _MOST_OF_OUTPUT :].strip('-')}-{digest}"
    return f"beam-shards-{job}-{place}".rstrip("-")


def engine_flags(engine: Engine, given: Sequence[str]) -> list[str]:
    """The flags of an engine, to put before those of the user, which take precedence.

    Args:
        engine: The engine's name.
        given: The user's flags for Beam.
    """
    names = {flag.split("=", 1)[0] for flag in given}
    if engine == "direct":
        return []
    portable = engine in _WITH_JOB_SERVICE and "--job_endpoint" in names
    runner = ["--runner=PortableRunner"] if portable else _RUNNERS[engine]
    # Listing the driver's packages takes a second, and no worker reads the list.
    flags = [*runner, "--experiments=disable_logging_submission_environment"]
    if engine not in _WITH_JOB_SERVICE:
        return flags
    flags += [f"--environment_cache_millis={_IDLE_MILLISECONDS}"]
    if "--environment_type" in names:
        return flags
    command = json.dumps({"command": worker_program()})
    return [*flags, "--environment_type=PROCESS", f"--environment_config={command}"]


def worker_program() -> str:
    """The path of `beam-shards-worker`, which starts workers in this environment."""
    return str(Path(sys.executable).with_name("beam-shards-worker"))
