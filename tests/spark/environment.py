"""The environment of every Spark that a test starts, in whatever process: many short lives, on little data.

Sparks of tests differ from those of users in nothing but what is listed here, and what a test itself sets.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

BUILD = Path(__file__).parents[2] / "build"
ARCHIVE = BUILD / "spark-classes.jsa"
HOME = BUILD / "spark-home"

JAVA = (
    "-XX:TieredStopAtLevel=1",  # a quick compiler is worth more than a good one
    "-XX:+UseSerialGC",
    "-Djdk.lang.Process.launchMechanism=VFORK",  # of chmod and readlink, for each small file of a checkpoint
)
SPARK = {
    "spark.sql.codegen.wholeStage": "false",  # to compile a plan takes longer than to interpret it for a few rows
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # Checkpoints without files of checksums, by the older of Hadoop's two ways to write: Java starts ten processes to
    # write a file with a checksum, five without, and fewer in this way.
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
"""Settings, as far as neither the test nor the product has its own; `up` is tested without them."""


def variables() -> dict[str, str]:
    """Without anybody's own settings. Archive and home are there when `make test` has prepared them; tests run without
    them as well, only slower."""
    archive = (f"-XX:SharedArchiveFile={ARCHIVE}",) if ARCHIVE.exists() else ()
    found = {
        "JDK_JAVA_OPTIONS": " ".join((*JAVA, *archive, *(f"-D{name}={value}" for name, value in SPARK.items()))),
        "SPARK_CONF_DIR": "/nonexistent",  # a directory that has something in it would keep Java from the archive
    }
    return found | home() if (HOME / "jars").exists() else found


def home() -> dict[str, str]:
    return {"SPARK_HOME": str(HOME)}


def make_home() -> None:
    """PySpark's own directory, but for the zip of its modules: Spark puts that before all other places, and whatever is
    in a zip is compiled anew in each Python process. Without it Python finds the same modules where they are
    installed, compiled: a worker takes 0.2 s of processor time to start, and not 0.9 s."""
    import pyspark

    BUILD.mkdir(exist_ok=True)
    made = Path(tempfile.mkdtemp(dir=BUILD))
    for name in ("bin", "jars"):
        (made / name).symlink_to(Path(pyspark.__file__).parent / name)
    shutil.rmtree(HOME, ignore_errors=True)
    os.rename(made, HOME)
