"""The least web application of the same three libraries: it answers /health from its store.

python -m bench.peer_app PORT DATABASE_FILE
"""

from __future__ import annotations

import sys

import uvicorn
from fastapi import FastAPI
from sqlalchemy import create_engine, text


def main(port: int, database: str) -> None:
    engine = create_engine(f"sqlite:///{database}")
    app = FastAPI()

    def health() -> dict[str, str]:
        with engine.connect() as conn:
            conn.execute(text("SELECT 1"))
        return {"status": "ok"}

    app.add_api_route("/health", health)
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
