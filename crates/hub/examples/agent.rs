//! An agent for tests. Its first argument selects what it does, good or bad.
//!
//! `count` is a good example of an agent: it continues with the number that it has stored, writes one
//! line for each reading, and ends cleanly on SIGTERM.

#![allow(clippy::unwrap_used)]

use std::io::{BufRead as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{env, fs, io, thread};

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let argument = |index: usize| arguments.get(index).map_or("", String::as_str);
    let data = PathBuf::from(env::var_os("MOTESEAL_DATA").unwrap());
    match argument(0) {
        "count" => count(&data.join("number"), argument(1)),
        "exit" => {
            println!();
            std::process::exit(3);
        }
        "fail" => std::process::exit(3),
        "silent" => wait(),
        "stubborn" => {
            // Tries to survive the hub, and writes to its closed output.
            let _ = rustix::process::set_parent_process_death_signal(None);
            loop {
                let _ = io::stdout().write_all(b"\n");
                thread::sleep(Duration::from_millis(50));
            }
        }
        "workers" => {
            drop(Command::new(env::current_exe().unwrap()).arg("worker").spawn().unwrap());
            wait();
        }
        "worker" => {
            // Works for a moment, and leaves the rest to an orphan.
            let start = std::time::Instant::now();
            while start.elapsed() < Duration::from_millis(20) {
                std::hint::spin_loop();
            }
            while Command::new(env::current_exe().unwrap()).arg("worker").spawn().is_err() {
                thread::sleep(Duration::from_millis(1));
            }
        }
        "echo" => echo(),
        "try" => try_everything(&data, argument(1)),
        "fork" => {
            say("before", "0");
            // A fork bomb: each process starts others.
            loop {
                drop(Command::new(env::current_exe().unwrap()).arg("fork").spawn());
            }
        }
        "children" => {
            let mut child =
                Command::new(env::current_exe().unwrap()).arg("silent").spawn().unwrap();
            say("child", &child.id().to_string());
            child.wait().unwrap();
        }
        "fill" => fill(&data),
        "long" => {
            let block = vec![b'x'; 1 << 20];
            let mut out = io::stdout().lock();
            for _ in 0..argument(1).parse::<u32>().unwrap() {
                out.write_all(&block).unwrap();
            }
            out.write_all(b"\n{\"after\":1}\n").unwrap();
            out.flush().unwrap();
            drop(out);
            wait();
        }
        "allocate" => {
            say("before", "0");
            let mut kept = Vec::new();
            loop {
                kept.push(vec![1u8; 1 << 20]);
            }
        }
        "spin" => {
            say("before", "0");
            loop {
                std::hint::spin_loop();
            }
        }
        other => panic!("{other}"),
    }
}

fn say(key: &str, value: &str) {
    println!("{{\"{key}\":\"{value}\"}}");
}

fn wait() {
    loop {
        thread::sleep(Duration::from_secs(60));
    }
}

/// Counts up, one number every two milliseconds. Stores the next number before it ends.
fn count(path: &std::path::Path, version: &str) {
    let stops = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGTERM, Arc::clone(&stops)).unwrap();
    let stored = fs::read_to_string(path).unwrap_or_default();
    let mut number: u64 = stored.trim().parse().unwrap_or(1);
    let mut out = io::stdout();
    while !stops.load(Ordering::SeqCst) {
        writeln!(out, "{{\"n\":{number},\"version\":\"{version}\"}}").unwrap();
        out.flush().unwrap();
        number += 1;
        thread::sleep(Duration::from_millis(2));
    }
    fs::write(path, number.to_string()).unwrap();
}

/// Says that it has come up, and repeats each command.
fn echo() {
    println!();
    for line in io::stdin().lock().lines() {
        println!("{}", line.unwrap());
    }
}

/// Fills its folder in files of a megabyte, until it is stopped.
fn fill(data: &std::path::Path) {
    say("before", "0");
    let block = vec![7u8; 1 << 20];
    for number in 0.. {
        let _ = fs::write(data.join(format!("{number}")), &block);
        thread::sleep(Duration::from_millis(1));
    }
}

/// Tries what a confined agent must not do, and reports which attempts succeeded.
fn try_everything(data: &std::path::Path, outside: &str) {
    let (outside, port) = outside.split_once(' ').unwrap();
    let outside = PathBuf::from(outside);
    let results = [
        ("own data", fs::write(data.join("own"), "1").is_ok()),
        ("thread", thread::spawn(|| true).join().is_ok()),
        ("read outside", fs::read(outside.join("secret")).is_ok()),
        ("list outside", fs::read_dir(&outside).is_ok()),
        ("write outside", fs::write(outside.join("new"), "1").is_ok()),
        ("delete outside", fs::remove_file(outside.join("secret")).is_ok()),
        ("write package", fs::write("new", "1").is_ok()),
        ("run another program", Command::new("/bin/true").status().is_ok()),
        ("network", TcpStream::connect(format!("127.0.0.1:{port}")).is_ok()),
        ("chmod outside", {
            use std::os::unix::fs::PermissionsExt as _;
            fs::set_permissions(&outside, fs::Permissions::from_mode(0o777)).is_ok()
        }),
        ("read the hub", {
            let parent = std::os::unix::process::parent_id();
            fs::read(format!("/proc/{parent}/environ")).is_ok()
        }),
    ];
    for (attempt, succeeded) in results {
        if succeeded {
            say("did", attempt);
        }
    }
    say("did", "end");
    wait();
}
