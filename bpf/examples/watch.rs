//! Runs a command and prints the evidence of it: `watch [--all] [--fentry|--tp-btf|--tp] [--touch P]
//! COMMAND…`; with `--all`, of every process meanwhile.

use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::Duration;

use memprov_bpf::{Hooks, Mechanism, Options, RawStack, Scope, StackSink};
use memprov_ledger::evidence::{Lifecycle, StackRef};
use memprov_ledger::identity::{StackId, Tgid};

/// Numbers stacks and prints what they hold.
struct Print(u32);

impl StackSink for Print {
    fn lifecycle(&mut self, _: &Lifecycle) {}

    fn stack(&mut self, raw: &RawStack<'_>) -> StackRef {
        self.0 += 1;
        println!(
            "stack {} of {}/{}: {} bytes{} from {:x}, ip {:x}{}",
            self.0,
            raw.tgid.0,
            raw.tid,
            raw.bytes.len(),
            if raw.complete { "" } else { " (cut)" },
            raw.regs.sp,
            raw.regs.ip,
            if raw.compat { ", 32-bit" } else { "" },
        );
        StackRef::Known(StackId(self.0))
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1).peekable();
    let mut options = Options::new(Scope::Only(vec![Tgid(std::process::id())]));
    while let Some(arg) = args.next_if(|arg| arg.starts_with("--")) {
        match arg.as_str() {
            "--all" => options.scope = Scope::All { except: Tgid(std::process::id()) },
            "--fentry" => options.mechanism = Some(Mechanism::Fentry),
            "--tp-btf" => options.mechanism = Some(Mechanism::TpBtf),
            "--tp" => options.mechanism = Some(Mechanism::Tp),
            "--touch" => options.first_touch = Some(args.next().unwrap_or_default().parse()?),
            _ => return Err(format!("unknown option {arg}").into()),
        }
    }
    for status in memprov_bpf::probe() {
        println!("probe {status:?}");
    }
    let mut hooks = Hooks::load(&options)?;
    for status in hooks.status() {
        println!("{status:?}");
    }
    println!("run time is counted: {}", hooks.count());
    let program = args.next().ok_or("a command is needed")?;
    let mut child = Command::new(program).args(args).process_group(0).spawn()?;
    let (mut sink, mut out) = (Print(0), Vec::new());
    let mut ended = false;
    while !ended {
        ended = child.try_wait()?.is_some();
        let watermark = hooks.poll(Duration::from_millis(100), &mut sink, &mut out)?;
        for evidence in out.drain(..) {
            println!("{evidence:?}");
        }
        println!("watermark {}", watermark.0);
    }
    println!("{:?}\n{:?}", hooks.losses(), hooks.counted());
    Ok(())
}
