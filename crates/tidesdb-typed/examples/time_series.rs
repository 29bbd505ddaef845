//! Measurements of many sensors: raw points that expire, hourly sums that stay, and questions about both.
//!
//! `cargo run -p tidesdb-typed --example time_series`

use std::time::Duration;

use tidesdb::{Db, FamilyOptions, SyncMode};
use tidesdb_typed::{Error, Result, Table, TableDefinition};

const HOUR: u64 = 3600;
const WEEK: Duration = Duration::from_secs(7 * 24 * HOUR);

/// Sensor and second to the value. Keys sort by sensor, then by time, so each sensor is one range.
const POINTS: TableDefinition<(String, u64), f64> = TableDefinition::new("points");
/// Sensor and hour to count, sum, least and greatest value.
const HOURS: TableDefinition<(String, u64), (u64, f64, f64, f64)> = TableDefinition::new("hours");

struct Series {
    db: Db,
    points: Table<(String, u64), f64>,
    hours: Table<(String, u64), (u64, f64, f64, f64)>,
}

impl Series {
    fn open(db: &Db) -> Result<Self> {
        let week = FamilyOptions::default().default_ttl(WEEK);
        Ok(Self { db: db.clone(), points: POINTS.open_with(db, week)?, hours: HOURS.open(db)? })
    }

    /// Stores points and adds them to the sums of their hours, in one commit.
    fn add(&self, sensor: &str, points: &[(u64, f64)]) -> Result<()> {
        self.db.transact(|tx| {
            for &(at, value) in points {
                self.points.within(tx).put((sensor, at), value)?;
                self.hours.within(tx).update((sensor, at / HOUR), |sums| {
                    let (count, sum, low, high) = sums.unwrap_or((0, 0.0, value, value));
                    Some((count + 1, sum + value, low.min(value), high.max(value)))
                })?;
            }
            Ok::<_, Error>(())
        })
    }

    fn latest(&self, sensor: &str) -> Result<Option<(u64, f64)>> {
        let newest = self.points.prefix((sensor,))?.next_back().transpose()?;
        Ok(newest.map(|((_, at), value)| (at, value)))
    }

    fn mean(&self, sensor: &str, from: u64, to: u64) -> Result<Option<f64>> {
        let (mut count, mut sum) = (0, 0.0);
        for row in self.points.range((sensor, from)..(sensor, to))? {
            count += 1;
            sum += row?.1;
        }
        Ok((count > 0).then(|| sum / f64::from(count)))
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    // A power cut may take the last second of measurements, but no commit in part.
    let db = Db::options(dir.path()).sync(SyncMode::Interval(Duration::from_secs(1))).open()?;
    let series = Series::open(&db)?;
    for (sensor, offset) in [("attic", 20.0), ("cellar", 10.0), ("cellar 2", 0.0)] {
        for hour in 0..24 {
            let minutes = (0..60).map(|m| (hour * HOUR + m * 60, offset + hour as f64 + m as f64 / 60.0));
            series.add(sensor, &minutes.collect::<Vec<_>>())?;
        }
    }

    let latest = series.latest("cellar")?.ok_or("no points")?;
    println!("cellar, latest: {:.2} at second {}", latest.1, latest.0);
    let morning = series.mean("cellar", 6 * HOUR, 12 * HOUR)?.ok_or("no points")?;
    println!("cellar, mean from 6 to 12: {morning:.2}");
    for row in series.hours.range(("attic", 22)..=("attic", 23))? {
        let ((sensor, hour), (count, sum, low, high)) = row?;
        println!(
            "{sensor}, hour {hour}: {count} points, mean {:.2}, {low:.2} to {high:.2}",
            sum / count as f64
        );
    }

    series.points.delete_range(("attic", 0)..("attic", 12 * HOUR))?; // one write, however many points
    let left = series.points.prefix(("attic",))?.count();
    println!(
        "attic, after deleting twelve hours: {left} points, {} hours",
        series.hours.prefix(("attic",))?.count()
    );
    if (left, latest.0) != (12 * 60, 24 * HOUR - 60) || (morning - 18.99).abs() > 0.01 {
        return Err("the answers are wrong".into());
    }
    db.close()?;
    Ok(())
}
