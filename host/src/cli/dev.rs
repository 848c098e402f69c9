//! `bbs dev`: runs everything with one command, to try the host and to write migrations. Builds the
//! modules, opens an embedded database in a folder of its own, serves, simulates cells, and prints
//! requests to try.

mod cells;

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context, ensure};
use bbs_database::Address;
use bbs_model::lrp_update::Pace;
use bbs_modules::build::{self, BuildRequest, SourceError};
use bbs_work::progress::Progress;
use clap::Args;

use super::exit::NotStarted;
use super::migrate::running_host;
use super::{output, whole_number};
use crate::config::{Config, Listeners, LogLevel, Logging, Tasks, Updates, found_modules};
use crate::logs::Logs;
use crate::migrate::{MigrateError, Reason};
use crate::startup::{self, HostFailure, StartupError};
use cells::SimulatedCells;

/// Build the modules, open an embedded SQLite database and serve it.
///
/// Needs the repository's source and Rust, or a folder of built modules, which is found where `bbs
/// serve` finds it: `modules` beside the executable, or beside its folder. Run it again after
/// adding a module or changing one that has not run: these are built and migrated to, unchanged
/// ones are not built again. A migration that has run on the database stays as it is; to change
/// it, delete the folder of `--data` and begin anew.
#[derive(Debug, Args)]
pub struct DevCommand {
    /// The folder for the database and the built modules.
    #[arg(long, value_name = "DIR", default_value = ".bbs")]
    data: PathBuf,
    /// The address of the API, on the loopback interface.
    #[arg(
        long,
        value_name = "ADDR",
        default_value = "127.0.0.1:8889",
        value_parser = listen_address
    )]
    listen: SocketAddr,
    /// A folder of built modules to use as it is, instead of building them.
    #[arg(long, value_name = "DIR")]
    modules: Option<PathBuf>,
    /// The number of simulated cells. They start and stop instances and run tasks, half a second
    /// each, without containers; whatever runs `/bin/false` fails.
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = whole_number::<u16>)]
    cells: u16,
}

/// Parses the address of `--listen`.
fn listen_address(text: &str) -> Result<SocketAddr, &'static str> {
    text.parse()
        .map_err(|_| "write it as IP:port, such as 127.0.0.1:8889")
}

impl DevCommand {
    /// Serves until a signal ends the process.
    ///
    /// # Errors
    /// The address is reachable from other machines, the folder cannot be created or another host
    /// serves from it, the modules cannot be built, or the host cannot start or fails.
    pub async fn run(self) -> anyhow::Result<()> {
        let logs = Logs::readable(LogLevel::Error);
        let config = self.prepared().await.map_err(NotStarted)?;
        let announce = |served: &startup::Served| {
            output::announce(welcome(served).trim_end());
            if self.cells > 0 {
                match SimulatedCells::new(served.address, self.cells) {
                    Ok(cells) => drop(tokio::spawn(cells.run())),
                    Err(error) => {
                        output::note(format_args!("cannot simulate cells: {error}"));
                    }
                }
            }
        };
        startup::serve(config, logs.level(), announce)
            .await
            .map_err(|failure| self.explained(failure))
    }

    /// The configuration of the host, once its folder exists and its modules are built.
    async fn prepared(&self) -> anyhow::Result<Config> {
        let listeners = Listeners {
            api: self.listen,
            ..Listeners::default()
        };
        ensure!(
            !listeners.are_exposed(),
            "cannot listen on {}: other machines can reach it, and `bbs dev` has no TLS, so every client has full access; \
             give `--listen` an address of this machine alone, such as 127.0.0.1:8889, or use `bbs serve` with certificates",
            self.listen
        );
        ensure!(
            !self.data.is_file(),
            "{} is a file; name a folder with `--data`",
            self.data.display()
        );
        bbs_files::create_private_folder(&self.data)
            .with_context(|| format!("cannot create {}", self.data.display()))?;
        let sources = self.sources()?;
        let modules_dir = match (&self.modules, &sources) {
            (Some(built), _) => built.clone(),
            (None, Some(_)) => self.built_modules(),
            (None, None) => found_modules().context(
                "there are no modules to build here, nor any beside the executable; run this inside the repository, or name \
                 built ones with `--modules`",
            )?,
        };
        let database = Address::Sqlite(self.data.join("bbs.db"));
        let config = Config {
            listeners,
            encryption_keys: [("dev".to_owned(), "dev".to_owned().into())].into(),
            active_key_label: "dev".to_owned(),
            tasks: Tasks::BOSH,
            // No route emitter is late here.
            updates: Updates {
                pace: Pace::default(),
                ..Updates::default()
            },
            logging: Logging {
                level: LogLevel::Error,
                ..Logging::default()
            },
            ..Config::smallest(database, modules_dir, &self.data)
        };
        // Otherwise this host would replace the other's modules, and then silently wait for the lock.
        if let Some(host) = running_host(&config).await {
            let folder = self.data.display();
            let holder = format!("process {}, which serves from {folder}", host.pid);
            return Err(StartupError::Locked {
                holder: Some(holder),
            }
            .into());
        }
        if let Some(request) = sources {
            build_modules(request, &config).await?;
        }
        Ok(config)
    }

    /// A failure of the host in the terms of this command's options, and with what to do about a
    /// module that is not the one that ran: the one that did was replaced when the modules were
    /// built.
    fn explained(&self, failure: HostFailure) -> anyhow::Error {
        let failure = match failure {
            // Its only port.
            HostFailure::Start(StartupError::Listen {
                address, source, ..
            }) => HostFailure::Start(StartupError::Listen {
                key: "--listen",
                address,
                source,
            }),
            failure => failure,
        };
        let is_of_changed_module = matches!(
            failure,
            HostFailure::Start(
                StartupError::ShutDown(Reason::Newer { .. })
                    | StartupError::Examination(
                        MigrateError::DigestChanged { .. } | MigrateError::RanAndIsMissing { .. }
                    )
            )
        );
        let error = anyhow::Error::new(failure);
        if !is_of_changed_module {
            return error;
        }
        let data = self.data.display();
        error.context(format!(
            "the modules are not those that ran on the database in {data}; put the migrations back as they were, or delete {data} to \
             begin anew"
        ))
    }

    fn built_modules(&self) -> PathBuf {
        self.data.join("modules")
    }

    /// The modules of the repository, to be built; none outside of one, or where built ones are
    /// named. Those of an earlier run are drafts of the same author.
    fn sources(&self) -> Result<Option<BuildRequest>, SourceError> {
        if self.modules.is_some() {
            return Ok(None);
        }
        match BuildRequest::everything(&self.built_modules()) {
            Ok(request) => Ok(Some(BuildRequest {
                replace: true,
                ..request
            })),
            Err(SourceError::NoList { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Builds the modules of the repository with the host's own sandbox, so that the host finds them
/// compiled.
async fn build_modules(request: BuildRequest, config: &Config) -> anyhow::Result<()> {
    let progress = Progress::default();
    let sandbox = startup::sandbox(config)?;
    let working = progress.clone();
    let work = tokio::task::spawn_blocking(move || build::build(&request, &sandbox, &working));
    super::progress::shown(&progress, work).await??;
    Ok(())
}

/// The welcome text, printed once the API answers: a request of an old API version, and a current
/// one that reads it.
fn welcome(served: &startup::Served) -> String {
    let startup::Served {
        address,
        data_version,
        migrations,
        translators,
    } = served;
    let host = format!("http://{address}");
    format!(
        "\n\
         Serving Diego's API at {host} (data version {data_version}; {migrations} migrations \
         and {translators} translators, all WebAssembly).\n\
         \n\
         Requests to try:\n\
         \n\
         1. Create an LRP as a client of API version 0.9 would; translators convert it to today's API:\n\
         \n\
         \x20  printf '{CREATE_0_9}' | curl -sS --data-binary @- {host}/v0.9/desired_lrps/create\n\
         \n\
         2. List it as today's Diego does:\n\
         \n\
         \x20  curl -sS -X POST {host}/v1/desired_lrps/list.r3 | strings\n\
         \n\
         3. See where it runs, unless there are no cells:\n\
         \n\
         \x20  curl -sS -X POST {host}/v1/actual_lrps/list | strings\n\
         \n\
         Stop with Ctrl-C.\n"
    )
}

/// A `CreateDesiredLRPRequest` of 0.9, for `printf`: process guid `hello`, domain `dev`, a root
/// file system, one instance and an action that runs `/bin/true`.
const CREATE_0_9: &str =
    r"\n7\n\005hello\022\003dev\032\024preloaded:cflinuxfs4 \001:\021\032\017\n\t/bin/true2\002me";

#[cfg(test)]
mod tests {
    use clap::Parser;
    use prost::Message;

    use super::*;
    use crate::cli::exit::Exit;

    /// The bytes that `printf` prints for a string with the escapes used here.
    fn printf(text: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut rest = text.as_bytes();
        while let Some((&byte, tail)) = rest.split_first() {
            rest = tail;
            if byte != b'\\' {
                bytes.push(byte);
                continue;
            }
            match rest[0] {
                b'n' => (bytes.push(b'\n'), rest = &rest[1..]).0,
                b't' => (bytes.push(b'\t'), rest = &rest[1..]).0,
                _ => {
                    let octal = std::str::from_utf8(&rest[..3]).unwrap();
                    bytes.push(u8::from_str_radix(octal, 8).unwrap());
                    rest = &rest[3..];
                }
            }
        }
        bytes
    }

    #[test]
    fn example_request_is_valid() {
        let request =
            bbs_proto::v0_9::CreateDesiredLrpRequest::decode(&*printf(CREATE_0_9)).unwrap();
        let lrp = request.desired_lrp.unwrap();
        assert_eq!(
            (&*lrp.process_guid, &*lrp.domain, lrp.instances),
            (&b"hello"[..], &b"dev"[..], 1)
        );
        assert_eq!(&*lrp.action.unwrap().run_action.unwrap().path, b"/bin/true");
    }

    #[derive(Debug, Parser)]
    struct DevLine {
        #[command(flatten)]
        dev: DevCommand,
    }

    #[test]
    fn changed_migration_is_reported_with_the_folder_to_delete() {
        let DevLine { dev } = DevLine::parse_from(["dev", "--data", "here/data"]);
        let ran = || "ran".to_owned();
        let newest_is_missing = Reason::Newer {
            current: 5,
            wanted: 4,
        };
        for (failure, cause) in [
            (
                StartupError::Examination(MigrateError::DigestChanged {
                    version: 5,
                    ran: ran(),
                    catalog: "changed".to_owned(),
                }),
                "migration 5 ran",
            ),
            (
                StartupError::Examination(MigrateError::RanAndIsMissing {
                    version: 5,
                    ran: ran(),
                }),
                "migration 5 ran",
            ),
            (
                StartupError::ShutDown(newest_is_missing),
                "the database is at 5, newer than the 4",
            ),
        ] {
            let error = dev.explained(HostFailure::Start(failure));
            assert!(
                error
                    .to_string()
                    .ends_with("or delete here/data to begin anew"),
                "{error}"
            );
            assert!(error.root_cause().to_string().contains(cause));
            assert_eq!(Exit::of(&error), Exit::NotStarted);
        }
        let other = dev.explained(HostFailure::Start(StartupError::NothingToRotate));
        assert_eq!(other.to_string(), StartupError::NothingToRotate.to_string());
    }
}
