//! Everything that lasts: the journal and its rows, objects, logs and time series, in one data
//! directory. Bytes and rows, no policy: what an event, a request or a view means is the caller's
//! business.
//!
//! All code here is synchronous. Every write is durable when its call returns, and reads run beside
//! writes. Three SQLite files (WAL, full sync) keep three kinds of traffic out of each other's way:
//! `shoal.db` (journal and rows), `objects.db` (metadata of the files in `objects/`) and
//! `telemetry.db` (logs, series, acknowledgements, warm pools).

mod block_sums;
mod buckets;
mod capture;
mod chosen_parts;
mod clock;
mod completion;
mod content_cache;
mod content_keys;
mod content_seals;
mod copying;
mod creator_rows;
mod data_dir;
mod deletions;
mod elsewhere;
mod error;
mod file_copies;
mod foreign;
mod ingest;
mod integrity;
mod journal;
mod link_tree;
mod listing;
mod log_append;
mod log_block;
mod log_deletions;
mod log_groups;
mod log_line;
mod log_sealing;
mod log_segments;
mod log_streams;
mod logs;
mod multipart;
mod object_files;
mod object_meta;
mod object_reader;
mod object_rows;
mod object_writer;
mod objects;
mod own_metrics;
mod part_places;
mod passthrough;
mod point_quota;
mod points;
mod profiled_minutes;
mod reserve;
mod resources;
mod retention;
mod roll_ups;
mod rows;
mod sent_uploads;
mod series;
mod series_append;
mod series_growth;
mod snapshot_file;
mod sqlite;
mod sqlite_journal;
mod sqlite_resources;
mod sqlite_trials;
mod summaries;
mod system_metrics;
mod system_tables;
mod telemetry;
mod telemetry_schema;
mod trials;
mod unsynced;
mod verify;
mod verify_logs;
mod version;
mod version_expiry;
mod version_listing;
mod version_rows;
#[cfg(test)]
mod version_tests;
mod warm_pools;
mod write_behind;

#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
#[cfg(any(test, feature = "conformance"))]
mod memory_journal;
#[cfg(any(test, feature = "conformance"))]
mod memory_resources;
#[cfg(any(test, feature = "conformance"))]
mod memory_trials;

pub use buckets::BucketMeta;
pub use capture::{
    Capture, CaptureSource, Content, ContentKey, DatabaseView, IsKnown, LogPosition, Logs, Opened, Pages, are_named,
    contents_of, id_of, is_left_out, jobs_running, make_another,
};
pub use content_keys::{BucketEncryption, Encryption};
pub use creator_rows::CreatorRows;
pub use data_dir::{DataDir, FORMAT, Holder};
pub use deletions::{DeleteCondition, Deletion};
pub use elsewhere::{ContentAddress, ContentStore, ElsewhereOptions, ElsewhereStatus, Outgoing, ReadContent};
pub use error::{ForeignError, ForeignFault, StoreError};
pub use foreign::{ForeignBucket, NewForeign, Passthrough};
pub use ingest::{Ingest, Quota};
pub use journal::{Batch, EachEvent, Journal, RowChange, Snapshots};
pub use link_tree::check_tree;
pub use log_append::LogLines;
pub use log_groups::GroupInfo;
pub use log_line::{LINE_OVERHEAD, LogEvent};
pub use log_streams::{StreamInfo, TRAINING_JOBS};
pub use logs::{LogDirection, LogPage, LogQuery};
#[cfg(any(test, feature = "conformance"))]
pub use memory_journal::MemoryJournal;
pub use multipart::{PartMeta, UploadChecksum, UploadMeta, uploaded_etag};
pub use object_meta::{Attributes, Listing, ObjectMeta, PutCondition};
pub use object_reader::{ObjectReader, ObjectStream};
pub use object_writer::{ContentHash, ObjectFile, ObjectWriter};
pub use objects::Objects;
pub use own_metrics::{OwnMetric, OwnMetricQuery, OwnPoint, StatisticSet};
pub use points::{MetricPoint, Point, Sample};
pub use profiled_minutes::{ProfiledMinute, ProfiledSamples};
pub use reserve::STEP_BYTES as RESERVE_STEP_BYTES;
pub use resources::{
    Cursor, Key, KeyTest, LinkEnd, Linked, Page, ResourceFilter, ResourceKind, ResourceProgress, ResourceRow,
    ResourceSort, SortOrder,
};
pub use retention::Bounds;
pub use roll_ups::{HostSeries, Stretch, Stretches};
pub use rows::{CheckpointRow, Rows};
pub use series::SeriesQuery;
pub use series_growth::{SeriesGrowth, SeriesPosition};
pub use sqlite_journal::{SqliteJournal, SqliteRows};
pub use summaries::Summary;
pub use system_metrics::{HostSystemMetrics, SystemNow, SystemQuery};
pub use system_tables::{SystemColumn, SystemPoint, SystemRow, SystemTable};
pub use telemetry::Telemetry;
pub use trials::{EachRecord, RecordRow, TrialFilter, TrialPage, TrialProgress, TrialRow, TrialSort};
pub use verify::{Damage, Report, Step, verify};
pub use version::{Version, Versioning};
pub use version_expiry::{Expired, VersionPlace};
pub use version_listing::{VersionListing, VersionMeta};
pub use warm_pools::WarmPoolRow;
