//! `shoal top`: the tuning jobs and training jobs that run and wait, as a screen that refreshes
//! itself.

mod frame;
mod gather;
mod screen;

use std::{
    io::{self, IsTerminal},
    time::Duration,
};

use anyhow::Result;
use clap::Args;

use self::{
    frame::{Look, Order, draw},
    gather::{Picture, gather},
    screen::{Key, Screen},
};
use crate::{
    client::{Client, now_ms},
    exit::Exit,
    output::show,
    settings::ClientFlags,
};

/// Width of a frame that no terminal limits.
const PLAIN_WIDTH: usize = 160;

/// Arguments of `shoal top`.
#[derive(Debug, Args)]
#[command(
    after_help = "Keys: q quits, s sorts by age, time or name, the arrows and page keys scroll, space refreshes."
)]
pub(crate) struct TopArgs {
    /// Print one frame and exit, as when standard output is no terminal.
    #[arg(long)]
    once: bool,
    /// Seconds between two looks.
    #[arg(long, default_value_t = 1.0, value_parser = seconds)]
    every: f64,
    #[command(flatten)]
    settings: ClientFlags,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("wanted a number of seconds from 0.1 to 3600".to_owned()),
    }
}

/// Looks once, or until the user has seen enough.
pub(crate) fn run(args: &TopArgs) -> Result<Exit> {
    let client = Client::connect(&args.settings)?;
    if args.once || !io::stdout().is_terminal() {
        let picture = gather(&client)?;
        let look = Look { width: PLAIN_WIDTH, height: usize::MAX, order: Order::Newest, scroll: 0, color: false };
        show(&(draw(&picture, &look, now_ms()).join("\n") + "\n"))?;
        return Ok(Exit::Ok);
    }
    watch(&client, Duration::from_secs_f64(args.every))
}

fn watch(client: &Client, every: Duration) -> Result<Exit> {
    // The first look is outside, so that a server that is not there is told on the user's own
    // screen.
    let mut picture = gather(client)?;
    let screen = Screen::enter()?;
    let (mut order, mut scroll) = (Order::Newest, 0_usize);
    loop {
        let (width, height) = screen.size();
        scroll = scroll.min(picture.jobs.len().saturating_sub(1));
        screen.show(&draw(&picture, &Look { width, height, order, scroll, color: true }, now_ms()))?;
        match screen.key(every)? {
            Some(Key::Quit) => return Ok(Exit::Ok),
            Some(Key::Sort) => order = order.next(),
            Some(Key::Move(rows)) => scroll = scroll.saturating_add_signed(rows),
            Some(Key::Redraw) => {}
            None => picture = again(client, picture)?,
        }
    }
}

/// A server that is being started again is waited for, with the last picture on the screen and what
/// is wrong above it.
fn again(client: &Client, last: Picture) -> Result<Picture> {
    match gather(client) {
        Err(error) if error.is_unreachable() => Ok(Picture { trouble: Some(error.to_string()), ..last }),
        picture => Ok(picture?),
    }
}
