//! A request to a served catalog as it goes over the wire, for what the client of the base does not show.

use std::io::{Read, Write};
use std::net::TcpStream;

/// What a server answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    /// Of an error in the model of the protocol.
    pub(crate) code: Option<u32>,
    pub(crate) body: String,
}

pub(crate) const JSON: &str = "application/json";
pub(crate) const ARROW: &str = "application/vnd.apache.arrow.stream";

/// Sends one HTTP/1.1 request on a connection of its own. `target` goes as it is: nothing is escaped or normalised.
pub(crate) async fn ask(
    port: u16,
    method: &str,
    target: &str,
    content_type: &str,
    body: &[u8],
) -> Reply {
    let mut request = format!(
        "{method} {target} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Type: {content_type}\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    request.extend_from_slice(body);
    let answer = tokio::task::spawn_blocking(move || {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.write_all(&request).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        String::from_utf8(answer).unwrap()
    })
    .await
    .unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let model: Option<serde_json::Value> = serde_json::from_str(body).ok();
    let code = model.and_then(|m| u32::try_from(m.get("code")?.as_u64()?).ok());
    Reply {
        status,
        code,
        body: body.to_string(),
    }
}

pub(crate) async fn post(port: u16, target: &str, body: &str) -> Reply {
    ask(port, "POST", target, JSON, body.as_bytes()).await
}
