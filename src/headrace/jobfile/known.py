"""Names that SeaTunnel has and Headrace may not have yet, so that an error can say so."""

from __future__ import annotations

from headrace.jobfile.nodes import Role

_BOTH = """
AmazonDynamoDB AmazonSqs Cassandra Clickhouse CosFile DB2 Doris Easysearch Elasticsearch FtpFile
Greenplum Hbase HdfsFile Hive Http Iceberg InfluxDB IoTDB Jdbc Kafka Kingbase Kudu LocalFile
Maxcompute Milvus MongoDB Mysql Neo4j ObsFile OceanBase Oracle OssFile OssJindoFile Paimon Phoenix
PostgreSQL Pulsar Qdrant RabbitMQ Redis Redshift Rocketmq S3File SftpFile Sls Snowflake Socket
SqlServer StarRocks TDengine Tablestore Typesense Vertica Databend DuckDB BigQuery Fluss GraphQL
HugeGraph Lance Mqtt Prometheus SingleStore SensorsData Aerospike GcsFile ADLSFile BosFile SmbFile
"""
_SOURCES = """
FakeSource Github Gitlab GoogleSheets HiveJdbc Jira Klaviyo Lemlist MongoDB-CDC MyHours MySQL-CDC
Notion OneSignal OpenMldb Opengauss-CDC Oracle-CDC Persistiq Postgres-CDC SqlServer-CDC TiDB-CDC
Web3j Salesforce HubSpot GoogleAds PythonSource DB2-CDC MariaDB-CDC OceanBase-CDC GaussDB-CDC
"""
_SINKS = """
ActiveMQ Assert ClickhouseFile Console DataHub DingTalk Druid EmailSink Enterprise-WeChat Feishu
GoogleFirestore Hudi S3Redshift SelectDBCloud Sentry Slack InMemory
"""
_TRANSFORMS = """
Sql FieldMapper Filter FilterRowKind Replace Split Copy JsonPath RowKindExtractor DynamicCompile
LLM Embedding Metadata FieldRename TableRename TableFilter TableMerge DataValidator RegexExtract
DefineSinkType FieldEncrypt TextChunk Calcite Python
"""

SEATUNNEL: dict[Role, tuple[str, ...]] = {
    "source": (*_BOTH.split(), *_SOURCES.split()),
    "transform": tuple(_TRANSFORMS.split()),
    "sink": (*_BOTH.split(), *_SINKS.split()),
}
