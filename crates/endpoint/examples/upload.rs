//! Uploads a file part by part, while the service tells through its channel how much has arrived. Neither side has more
//! of it in memory than one window; a body that is cut leaves no file behind.

use std::error::Error;
use std::io::Write;
use std::path::PathBuf;
use std::rc::Rc;

use sekisho_endpoint::{
    Code, Config, Endpoint, Manner, NewRequest, Request, Response, Services, connect,
    stream_service_fn,
};
use tokio::net::UnixListener;

/// The first piece is the name of the file, the others are its content.
async fn store(folder: PathBuf, mut request: Request, response: Response) {
    let answer = match receive(&folder, &mut request, &response).await {
        Ok(bytes) => Ok(bytes.to_string().into_bytes()),
        Err(error) => Err((Code::IoError, error.to_string())),
    };
    response.give(answer);
}

async fn receive(
    folder: &std::path::Path,
    request: &mut Request,
    response: &Response,
) -> Result<usize, Box<dyn Error>> {
    let mut body = request.take_stream();
    let name = String::from_utf8(body.next().await.ok_or("a name comes first")??)?;
    if name.contains('/') || name.starts_with('.') {
        return Err("that is no name for a file".into());
    }
    let channel = response.acquire_channel()?;
    let partial = folder.join(".partial");
    let received = async {
        let mut file = std::fs::File::create(&partial)?;
        let mut bytes = 0;
        while let Some(piece) = body.next().await {
            let piece = piece?;
            file.write_all(&piece)?;
            bytes += piece.len();
            // A client that does not read its progress gets its file stored all the same.
            let _ = channel.write(bytes.to_string().as_bytes()).await;
        }
        std::fs::rename(&partial, folder.join(&name))?;
        Ok::<_, Box<dyn Error>>(bytes)
    };
    let received = received.await;
    response.release_channel(channel);
    if received.is_err() {
        let _ = std::fs::remove_file(&partial);
    }
    received
}

async fn run() -> Result<(), Box<dyn Error>> {
    let folder = std::env::temp_dir().join(format!("sekisho-upload-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let mut services = Services::default();
    let into = folder.clone();
    let service =
        stream_service_fn(move |request, response| store(into.clone(), request, response));
    services.add(100, "store", service)?;
    let endpoint = Endpoint::new(Config::default(), services);
    let socket = folder.join("socket");
    tokio::task::spawn_local(Rc::clone(&endpoint).listen_unix(UnixListener::bind(&socket)?));

    let client = connect(&format!("unix:{}", socket.display()), "example").await?;
    let request = NewRequest::to_name("store").body(b"numbers").with_upload();
    let mut call = client.start(&request)?;
    let upload = call.upload();
    let sends = async {
        for number in 0..100_u8 {
            upload.send(&[number; 10_000]).await?;
        }
        upload.finish();
        Ok::<_, sekisho_endpoint::CallError>(())
    };
    let takes = async {
        while let Some(progress) = call.next_record().await? {
            print!("{} ", String::from_utf8_lossy(&progress));
        }
        call.answer().await
    };
    let ((), stored) = tokio::try_join!(sends, takes)?;
    println!("\nstored {} bytes", String::from_utf8_lossy(&stored));
    assert_eq!(std::fs::metadata(folder.join("numbers"))?.len(), 1_000_000);
    client.shut_down(Manner::Graceful).await?;
    Ok(std::fs::remove_dir_all(&folder)?)
}

/// Runs it.
pub fn main() -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    tokio::task::LocalSet::new().block_on(&runtime, run())
}
