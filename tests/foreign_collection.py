"""A collection of a book's passages, as other software fills one."""

from typing import Any

from qdrant_client import QdrantClient, models

from fakes import DIM, WordEncoder

NAME = "rag_content_chunks"
BOOK = "https://book.example/"
PASSAGES = [
    ("A node is a process of ROS 2 that computes.", "ros2", "ROS 2", "Nodes and topics"),
    ("Gazebo simulates physics with an engine.", "gazebo", "Digital Twin", "Physics in Gazebo"),
    ("A simulated lidar is a sensor of Gazebo.", "gazebo", "Digital Twin", "Sensor simulation"),
    ("The brain of a robot plans its way.", "brain", "AI-Robot Brain", "Planning"),
]


def payload(text: str, page: str, title: str, section: str, index: int) -> dict[str, Any]:
    return {
        "text": text, "source_url": BOOK + page, "page_title": title, "section": section,
        "chunk_index": index,
    }  # fmt: skip


def fill(client: QdrantClient, name: str = NAME, vector: str | None = None) -> None:
    """What other software did."""
    size = models.VectorParams(size=DIM, distance=models.Distance.COSINE)
    client.create_collection(name, vectors_config=size if vector is None else {vector: size})
    vectors = [one.tolist() for one in WordEncoder().encode([text for text, *_ in PASSAGES])]
    points = [
        models.PointStruct(
            id=index,
            vector=numbers if vector is None else {vector: numbers},
            payload=payload(*passage, index),
        )
        for index, (passage, numbers) in enumerate(zip(PASSAGES, vectors, strict=True))
    ]
    client.upsert(name, points)
