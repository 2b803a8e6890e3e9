//! What is damaged in a target: it is found, named, and keeps nothing else from being used.

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use shoal_backup::{BackupError, Directory, Follow, Follower, Restore, Target, list};
use shoal_store::verify;

use super::{Server, bring_back, quiet, take};

#[test]
fn a_damaged_file_is_found_and_nothing_is_left() {
    let temp = tempfile::tempdir().unwrap();
    let server = Server::at(&temp.path().join("data"));
    server.put("long", &[3; 200_000]);
    server.put("other", &[4; 200_000]);
    let target = Directory::at(&temp.path().join("target"));
    let head = take(&server, &target, None).head;
    let new = temp.path().join("new");
    let names: Vec<String> = target.list("").unwrap().into_keys().filter(|name| name != "lock").collect();
    let mut found = BTreeSet::new();
    for name in &names {
        let path = temp.path().join("target").join(name);
        let sound = fs::read(&path).unwrap();
        let mut bytes = sound.clone();
        let middle = bytes.len() / 2;
        // More than a bit: one in the compressed bytes may mean the same.
        bytes.iter_mut().skip(middle).take(16).for_each(|byte| *byte ^= 0xff);
        fs::write(&path, bytes).unwrap();
        match bring_back(&target, &new, &Restore::default()) {
            // A digit of a time in the head, say.
            Ok(_) => fs::remove_dir_all(&new).unwrap(),
            Err(_) => drop(found.insert(name.split('/').next_back().unwrap().to_owned())),
        }
        assert!(!new.exists());
        fs::write(&path, sound).unwrap();
    }
    assert!(found.contains("pack-0") && found.contains("details"), "{found:?}");
    assert_eq!(found.iter().filter(|name| name.len() == 32).count(), 2, "both objects: {found:?}");

    let object = target.list("objects").unwrap().into_keys().next().unwrap();
    fs::remove_file(temp.path().join("target").join(object)).unwrap();
    let error = bring_back(&target, &new, &Restore::default()).unwrap_err();
    assert!(error.to_string().contains("it is missing in the backup"), "{error}");
    let options = Restore { accept_damage: true, backup: Some(head.id), ..Restore::default() };
    assert_eq!(bring_back(&target, &new, &options).unwrap().damages.len(), 1);
    assert_eq!(verify(&new, &mut |_| {}).unwrap().damages.len(), 1);
}

/// One backup that is damaged keeps no other from being used, made or removed.
#[test]
fn a_damaged_head_is_left_out() {
    let temp = tempfile::tempdir().unwrap();
    let server = Server::at(&temp.path().join("data"));
    let target = Directory::at(&temp.path().join("target"));
    let mut heads = Vec::new();
    for number in 0..3 {
        server.put(&format!("k{number}"), &[number; 100_000]);
        heads.push(take(&server, &target, None).head);
        thread::sleep(Duration::from_millis(2));
    }
    let damage = |id: &str| {
        let path = temp.path().join("target/backups").join(id).join("head.json");
        let mut bytes = fs::read(&path).unwrap();
        bytes.truncate(bytes.len() / 2);
        fs::write(path, bytes).unwrap();
    };
    damage(&heads[2].id);
    let listing = list(&target).unwrap();
    assert_eq!(listing.whole.iter().map(|it| &it.head).collect::<Vec<_>>(), [&heads[0], &heads[1]]);
    assert_eq!(listing.skipped.iter().map(|it| &it.id).collect::<Vec<_>>(), [&heads[2].id]);
    // The newest that is whole, and the newer one is reported.
    let restored = bring_back(&target, &temp.path().join("newest"), &Restore::default()).unwrap();
    assert_eq!((&restored.head, &restored.skipped), (&heads[1], &listing.skipped));
    let of = |head: &shoal_backup::Head| Restore { backup: Some(head.id.clone()), ..Restore::default() };
    assert_eq!(bring_back(&target, &temp.path().join("first"), &of(&heads[0])).unwrap().skipped, []);
    let error = bring_back(&target, &temp.path().join("none"), &of(&heads[2])).unwrap_err();
    assert!(matches!(&error, BackupError::Damaged { name, .. } if name.contains(&heads[2].id)), "{error}");

    // What only the damaged one names stays as long as it is not among the oldest.
    server.objects.delete("b", "k2").unwrap();
    let taken = take(&server, &target, Some(2));
    assert_eq!(taken.removed, [heads[0].id.clone()]);
    assert!(taken.warnings[0].contains(&heads[2].id), "{:?}", taken.warnings);
    assert_eq!(target.list("objects").unwrap().len(), 3);
    assert_eq!(take(&server, &target, Some(2)).removed, [heads[1].id.clone(), heads[2].id.clone()]);
    assert_eq!((list(&target).unwrap().skipped, target.list("objects").unwrap().len()), (Vec::new(), 2));
    // Details of one that is kept: all stays, and the new backup is one.
    let kept = list(&target).unwrap().whole.pop().unwrap().head.id;
    fs::write(temp.path().join("target/backups").join(&kept).join("details"), b"").unwrap();
    let taken = take(&server, &target, Some(2));
    assert!(taken.removed.is_empty() && taken.warnings[0].contains("nothing was removed"), "{taken:?}");
    bring_back(&target, &temp.path().join("last"), &of(&taken.head)).unwrap();
}

/// A tick that is not there, below later ones, is no end.
#[test]
fn a_missing_tick_is_damage() {
    let temp = tempfile::tempdir().unwrap();
    let server = Server::at(&temp.path().join("data"));
    let target: Arc<dyn Target> = Arc::new(Directory::at(&temp.path().join("target")));
    let options = Follow { pause: Duration::from_millis(1), ..Follow::default() };
    let (mut follower, _) = Follower::begin(server.source(), Arc::clone(&target), options, &mut quiet).unwrap();
    for number in 0..4 {
        server.put(&format!("k{number}"), b"content");
        follower.turn().unwrap();
    }
    follower.end().unwrap();
    let ticks: Vec<String> = target.list("ticks").unwrap().into_keys().collect();
    assert!(list(&*target).unwrap().whole[0].damage.is_none());
    target.remove(&ticks[2..3]).unwrap();
    let error = bring_back(&*target, &temp.path().join("none"), &Restore::default()).unwrap_err().to_string();
    assert!(error.contains(&ticks[2]) && error.contains("it is missing"), "{error}");
    let before = error.split("--until-tick ").nth(1).unwrap().parse().unwrap();
    assert!(ticks[1].ends_with(&format!("{before:012}")), "{before}");
    let listed = list(&*target).unwrap().whole.remove(0);
    assert!(listed.damage.as_ref().is_some_and(|damage| damage.contains(&ticks[2])), "{listed:?}");
    let options = Restore { until_tick: Some(before), ..Restore::default() };
    let restored = bring_back(&*target, &temp.path().join("part"), &options).unwrap();
    assert_eq!((restored.ticks, restored.until_ms), (listed.ticks, listed.until_ms));
    // At the end there is no later one to tell.
    target.remove(&ticks[3..]).unwrap();
    bring_back(&*target, &temp.path().join("whole"), &Restore::default()).unwrap();
}
