//! Object stores behind HTTP, on free ports of the loopback: S3 by moto, Azure Blob by azurite. Both are in memory.
//!
//! Each is one process for all tests of this one, started on first use, with a bucket or container for each root. It
//! ends when its input does, so it never outlives this process, not even a killed one. What they need is pinned in
//! `servers/`, and installed on first use into the build directory by `python3` (with its `venv`) and `npm`. A server
//! that cannot be installed or started fails the test.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// For a server to start, or to answer one command, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// The account that azurite has, as its documentation tells: it opens nothing else.
const ACCOUNT: &str = "devstoreaccount1";
const ACCOUNT_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// What moto is told; it takes any, until it is told to refuse.
const S3_KEY: &str = "AKIAIOSFODNN7EXAMPLE";
const S3_SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    S3,
    Azure,
}

/// A running server; it ends with this.
#[derive(Debug)]
pub struct Server {
    protocol: Protocol,
    port: u16,
    child: Child,
    pipe: Mutex<Pipe>,
}

#[derive(Debug)]
struct Pipe {
    commands: Option<ChildStdin>,
    answers: Receiver<String>,
    log: File,
}

impl Server {
    /// The server that the tests of this process share.
    pub fn shared(protocol: Protocol) -> &'static Self {
        static S3: (OnceLock<Server>, AtomicBool) = (OnceLock::new(), AtomicBool::new(false));
        static AZURE: (OnceLock<Server>, AtomicBool) = (OnceLock::new(), AtomicBool::new(false));
        let (server, tried) = match protocol {
            Protocol::S3 => &S3,
            Protocol::Azure => &AZURE,
        };
        server.get_or_init(|| {
            // Each test fails, and only the first one waits.
            let again = tried.swap(true, Ordering::Relaxed);
            assert!(
                !again,
                "the {protocol:?} server did not start for another test"
            );
            Self::start(protocol)
        })
    }

    /// A server of its own, for tests that do it harm.
    pub fn start(protocol: Protocol) -> Self {
        let mut command = match protocol {
            Protocol::S3 => s3_command(),
            Protocol::Azure => azure_command(),
        };
        let log = tempfile::tempfile().unwrap();
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log.try_clone().unwrap());
        let mut child = command
            .spawn()
            .unwrap_or_else(|e| panic!("cannot start the {protocol:?} server: {command:?}: {e}"));
        let (send, answers) = mpsc::channel();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                // Nobody listens any more: the rest is read and dropped, so that the server never waits for us.
                drop(send.send(line));
            }
        });
        let pipe = Pipe {
            commands: child.stdin.take(),
            answers,
            log,
        };
        let ready = pipe.answer("to start");
        let port = ready.strip_prefix("ready ").and_then(|p| p.parse().ok());
        Self {
            protocol,
            port: port.unwrap_or_else(|| panic!("the {protocol:?} server says {ready:?}")),
            child,
            pipe: Mutex::new(pipe),
        }
    }

    /// The URI of a new bucket or container.
    pub fn bucket(&self) -> String {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let name = format!("lancekeep-{}", MADE.fetch_add(1, Ordering::Relaxed));
        self.tell(&format!("make {name}"));
        self.uri_of(&name)
    }

    /// The URI of a bucket or container that may not be there.
    pub fn uri_of(&self, bucket: &str) -> String {
        match self.protocol {
            Protocol::S3 => format!("s3://{bucket}"),
            Protocol::Azure => format!("az://{bucket}"),
        }
    }

    /// The storage options that open it, as Lance takes them.
    pub fn options(&self) -> Vec<(String, String)> {
        let endpoint = format!("http://127.0.0.1:{}", self.port);
        let options = match self.protocol {
            Protocol::S3 => vec![
                ("aws_access_key_id", S3_KEY.to_string()),
                ("aws_secret_access_key", S3_SECRET.to_string()),
                ("aws_region", "us-east-1".to_string()),
                ("aws_endpoint", endpoint),
                ("aws_virtual_hosted_style_request", "false".to_string()),
                ("allow_http", "true".to_string()),
            ],
            Protocol::Azure => vec![
                ("azure_storage_account_name", ACCOUNT.to_string()),
                ("azure_storage_account_key", ACCOUNT_KEY.to_string()),
                ("azure_storage_endpoint", format!("{endpoint}/{ACCOUNT}")),
                ("allow_http", "true".to_string()),
            ],
        };
        let owned = |(key, value): (&str, String)| (key.to_string(), value);
        options.into_iter().map(owned).collect()
    }

    /// Options with a wrong secret. On S3 nobody's are right from then on.
    pub fn wrong_options(&self) -> Vec<(String, String)> {
        if self.protocol == Protocol::S3 {
            self.tell("refuse");
        }
        let mut options = self.options();
        for (key, value) in &mut options {
            if key.ends_with("_secret_access_key") || key.ends_with("_account_key") {
                // Azure's are in base 64.
                *value = "d3Jvbmcta2V5LW9mLWEtdGVzdA==".to_string();
            }
        }
        options
    }

    /// The requests to the bucket of a URI since this was asked last (S3 only): `PUT`, `GET`, `HEAD`, `LIST` and the
    /// bulk `DELETE` among them. Its own client cannot count what it repeats.
    pub fn requests(&self, uri: &str) -> Vec<String> {
        assert_eq!(self.protocol, Protocol::S3);
        let bucket = uri.split('/').nth(2).unwrap();
        let told = self.tell(&format!("requests {bucket}"));
        told.split_whitespace().map(ToString::to_string).collect()
    }

    /// Ends it; what is asked from then on is refused by the machine.
    pub fn stop(&mut self) {
        self.pipe
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner)
            .commands = None;
        drop(self.child.kill());
        drop(self.child.wait());
    }

    fn tell(&self, command: &str) -> String {
        let mut pipe = self.pipe.lock().unwrap_or_else(PoisonError::into_inner);
        let commands = pipe.commands.as_mut().unwrap();
        writeln!(commands, "{command}").unwrap();
        let answer = pipe.answer(command);
        let told = answer.strip_prefix("done");
        told.unwrap_or_else(|| panic!("{command}: {answer}"))
            .trim()
            .to_string()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Pipe {
    fn answer(&self, to: &str) -> String {
        self.answers.recv_timeout(PATIENCE).unwrap_or_else(|why| {
            let (mut log, mut text) = (&self.log, String::new());
            log.rewind().unwrap();
            log.read_to_string(&mut text).unwrap();
            panic!("a store's server does not answer {to:?} ({why}): {text}")
        })
    }
}

/// Where things are installed.
fn directory() -> &'static Path {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    fs::create_dir_all(directory).unwrap();
    directory
}

/// Runs a command of the set-up to its end.
fn run(command: &mut Command, purpose: &str) {
    let output = command
        .output()
        .unwrap_or_else(|e| panic!("cannot {purpose}: {command:?}: {e}"));
    assert!(
        output.status.success(),
        "cannot {purpose}: {command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
}

/// A directory with what `pinned` (file names and contents) asks for, made by `install` unless it is there.
fn installed(name: &str, pinned: &[(&str, &str)], install: impl FnOnce(&Path)) -> PathBuf {
    // One at a time, also of several processes that share the build directory.
    let lock = File::create(directory().join(format!("{name}.lock"))).unwrap();
    lock.lock().unwrap();
    let place = directory().join(name);
    let wanted: String = pinned.iter().map(|(_, content)| *content).collect();
    // Written last: without it the installation is half made.
    let stamp = place.join("installed");
    if fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) {
        return place;
    }
    if place.exists() {
        fs::remove_dir_all(&place).unwrap();
    }
    fs::create_dir_all(&place).unwrap();
    for (file, content) in pinned {
        fs::write(place.join(file), content).unwrap();
    }
    install(&place);
    fs::write(stamp, wanted).unwrap();
    place
}

fn s3_command() -> Command {
    let pinned = [("requirements.txt", include_str!("servers/requirements.txt"))];
    let place = installed("servers-s3", &pinned, |place| {
        let environment = place.join("python");
        run(
            Command::new("python3")
                .args(["-m", "venv"])
                .arg(&environment),
            "make a virtual environment (Debian has it in the package python3-venv)",
        );
        run(
            Command::new(environment.join("bin/python"))
                .args(["-m", "pip", "install", "--quiet", "--no-input"])
                .args(["--disable-pip-version-check", "--only-binary", ":all:"])
                .arg("-r")
                .arg(place.join("requirements.txt")),
            "install moto from the package index",
        );
    });
    let mut command = Command::new(place.join("python/bin/python"));
    // No modules but the environment's. The program travels as an argument, so that it need not be kept in step.
    command.args(["-E", "-s", "-c", include_str!("servers/s3.py")]);
    command
}

fn azure_command() -> Command {
    let pinned = [
        ("package.json", include_str!("servers/package.json")),
        (
            "package-lock.json",
            include_str!("servers/package-lock.json"),
        ),
    ];
    let place = installed("servers-azure", &pinned, |place| {
        run(
            Command::new("npm")
                .args(["ci", "--omit=dev", "--ignore-scripts"])
                .args(["--no-audit", "--no-fund"])
                .current_dir(place),
            "install azurite from the package registry (Debian has npm in the package npm)",
        );
    });
    let mut command = Command::new("node");
    // Debian's `node` is `nodejs` too; npm brings it along.
    command
        .current_dir(place)
        .args(["-e", include_str!("servers/azure.js"), "--"])
        .args([ACCOUNT, ACCOUNT_KEY]);
    command
}
