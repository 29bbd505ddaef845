//! A web service: notes over HTTP, with axum and tokio. Calls that may wait for the disk run on blocking threads; a
//! shutdown finishes the requests, then closes the database. Monitors find `/health` and, for Prometheus, `/metrics`.
//! docs/how-to/async.md explains the choices.
//!
//! `cargo run -p tidesdb-typed --features json --example web -- 127.0.0.1:8080 notes.db`
//! (without arguments: serves itself a few requests and ends)

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, Query, State};
use axum::http::{HeaderName, StatusCode, header};
use axum::routing::get;
use axum::{Json as Body, Router};
use serde::{Deserialize, Serialize};
use tidesdb::{Db, HealthState};
use tidesdb_typed::{Error, IndexDefinition, Json, Table, TableDefinition};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::spawn_blocking;

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Note {
    owner: String,
    text: String,
}

#[derive(Deserialize)]
struct Filter {
    owner: String,
}

const BY_OWNER: IndexDefinition<Json<Note>, String> =
    IndexDefinition::new("owner", |note, keys| keys.add(&note.owner));
const NOTES: TableDefinition<u64, Json<Note>> = TableDefinition::new("notes").indexes(&[&BY_OWNER]);

/// Longest wait for the close: a supervisor would kill the process soon after.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(60);

type Notes = Arc<Table<u64, Json<Note>>>;

/// Runs `work` on a blocking thread and translates its errors.
async fn on_disk<R: Send + 'static>(
    notes: Notes,
    work: impl FnOnce(&Table<u64, Json<Note>>) -> Result<R, Error> + Send + 'static,
) -> Result<R, (StatusCode, String)> {
    let done = spawn_blocking(move || work(&notes)).await;
    let done = done.map_err(|e| (StatusCode::INTERNAL_SERVER_ERROR, e.to_string()))?;
    done.map_err(|e| match &e {
        Error::Database(e) if e.is_retryable() => (StatusCode::SERVICE_UNAVAILABLE, e.to_string()),
        e => (StatusCode::INTERNAL_SERVER_ERROR, e.to_string()),
    })
}

async fn read(State(notes): State<Notes>, Path(id): Path<u64>) -> Result<Body<Note>, (StatusCode, String)> {
    let note = on_disk(notes, move |notes| notes.get(id)).await?;
    note.map(Body).ok_or((StatusCode::NOT_FOUND, format!("there is no note {id}")))
}

async fn write(
    State(notes): State<Notes>,
    Path(id): Path<u64>,
    Body(note): Body<Note>,
) -> Result<StatusCode, (StatusCode, String)> {
    on_disk(notes, move |notes| notes.put(id, &note)).await?;
    Ok(StatusCode::CREATED) // the note and its index entry are durable
}

async fn list(
    State(notes): State<Notes>,
    Query(filter): Query<Filter>,
) -> Result<Body<Vec<(u64, Note)>>, (StatusCode, String)> {
    let found = on_disk(notes, move |notes| {
        notes.by(&BY_OWNER).all(&filter.owner)?.map(|row| row.map(|(_, id, note)| (id, note))).collect()
    });
    found.await.map(Body)
}

async fn health(State(db): State<Db>) -> (StatusCode, String) {
    let health = db.health();
    match health.state {
        HealthState::Poisoned => (StatusCode::SERVICE_UNAVAILABLE, health.to_string()),
        _ => (StatusCode::OK, health.to_string()),
    }
}

async fn metrics(State(db): State<Db>) -> ([(HeaderName, &'static str); 1], String) {
    const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, OPENMETRICS)], db.metrics_text())
}

/// Serves until `stop` is ready, finishes the requests in progress, and closes the database.
async fn serve(
    db: Db,
    listener: TcpListener,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let notes = Arc::new(NOTES.open(&db)?);
    let service =
        Router::new().route("/notes", get(list)).route("/notes/{id}", get(read).put(write)).with_state(notes);
    let monitored = Router::new().route("/health", get(health)).route("/metrics", get(metrics));
    let app = service.merge(monitored.with_state(db.clone()));
    axum::serve(listener, app).with_graceful_shutdown(stop).await?;
    spawn_blocking(move || db.close_timeout(CLOSE_TIMEOUT)).await??;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    if let [address, folder] = &*std::env::args().skip(1).collect::<Vec<_>>() {
        let stop = async { drop(tokio::signal::ctrl_c().await) };
        return serve(Db::open(folder)?, TcpListener::bind(address).await?, stop).await;
    }
    let dir = tempfile::tempdir()?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let service = tokio::spawn(serve(Db::open(dir.path())?, listener, async { drop(stopped.await) }));

    let request = async |head: &str, body: &str| -> io::Result<String> {
        let mut stream = TcpStream::connect(address).await?;
        let length = body.len();
        let headers = "host: example\r\nconnection: close\r\ncontent-type: application/json";
        let text = format!("{head} HTTP/1.1\r\n{headers}\r\ncontent-length: {length}\r\n\r\n{body}");
        stream.write_all(text.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        println!("{head}: {}", answer.lines().next().unwrap_or_default());
        Ok(answer)
    };
    let created = request("PUT /notes/7", r#"{"owner":"ann","text":"buy a boat"}"#).await?;
    let note = request("GET /notes/7", "").await?;
    let of_ann = request("GET /notes?owner=ann", "").await?;
    let missing = request("GET /notes/8", "").await?;
    let health = request("GET /health", "").await?;
    let metrics = request("GET /metrics", "").await?;
    let answers = created.contains("201 Created")
        && note.ends_with(r#"{"owner":"ann","text":"buy a boat"}"#)
        && of_ann.ends_with(r#"[[7,{"owner":"ann","text":"buy a boat"}]]"#)
        && missing.contains("404 Not Found")
        && health.contains("200 OK")
        && metrics.contains("content-type: application/openmetrics-text; version=1.0.0; charset=utf-8")
        && metrics.ends_with("# EOF\n");
    drop(stop);
    service.await??;
    let db = Db::open(dir.path())?; // closed cleanly: nothing has to be recovered
    if !answers || NOTES.open(&db)?.get(7)?.is_none() {
        return Err("the answers are wrong".into());
    }
    Ok(())
}
