//! Deliveries by HTTP.

use std::sync::OnceLock;

use http::HeaderMap;
use shoal_runtime::outbox::Outcome;
use ureq::Agent;

use super::delivery::ATTEMPT_TIMEOUT;
use crate::outgoing;

/// Posts; the authorities that this machine trusts are read with the first one.
#[derive(Default)]
pub(super) struct Poster(OnceLock<Agent>);

impl Poster {
    /// Posts a text. Answers of 4xx are final, but for those that ask to come again, as at AWS.
    pub(super) fn post(&self, url: &str, headers: &HeaderMap, body: String) -> Outcome {
        let mut request = self.0.get_or_init(|| outgoing::agent(ATTEMPT_TIMEOUT)).post(url);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        match request.send(body) {
            Ok(answer) if answer.status().is_success() => Outcome::Delivered,
            Ok(answer) => {
                let (status, reason) = (answer.status(), format!("the endpoint answered {}", answer.status()));
                let is_final = status.is_client_error() && !matches!(status.as_u16(), 408 | 429);
                if is_final { Outcome::Refused(reason) } else { Outcome::Failed(reason) }
            }
            Err(error @ (ureq::Error::BadUri(_) | ureq::Error::Http(_))) => Outcome::Refused(error.to_string()),
            Err(error) => Outcome::Failed(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::TcpListener,
        thread,
    };

    use super::*;

    #[test]
    fn answers_say_whether_it_is_worth_another_attempt() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let statuses = ["200 OK", "204 No Content", "302 Found", "404 Not Found", "429 Slow", "500 Broken"];
        let server = thread::spawn(move || {
            for status in statuses {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = Vec::new();
                while !request.ends_with(b"hello") {
                    let mut buffer = [0; 1024];
                    let read = stream.read(&mut buffer).unwrap();
                    request.extend_from_slice(&buffer[..read]);
                }
                let answer =
                    format!("HTTP/1.1 {status}\r\nLocation: /\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        let poster = Poster::default();
        let found: Vec<&str> = statuses
            .iter()
            .map(|_| match poster.post(&url, &HeaderMap::new(), "hello".to_owned()) {
                Outcome::Delivered => "delivered",
                Outcome::Failed(_) => "again",
                Outcome::Refused(_) => "final",
            })
            .collect();
        assert_eq!(found, ["delivered", "delivered", "again", "final", "again", "again"]);
        server.join().unwrap();
        assert!(matches!(poster.post(&url, &HeaderMap::new(), String::new()), Outcome::Failed(_)), "no server listens");
    }
}
