"""Links that open a recording at a second or a PDF at a page, and never run anything."""

import pytest

from catalog.retrieval.citations import file_link, move_link, page_link, recording_link


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("https://www.youtube.com/watch?v=aB-_1", "https://www.youtube.com/watch?v=aB-_1&t=65"),
        (
            "https://m.youtube.com/watch?t=9s&v=x&list=l",
            "https://m.youtube.com/watch?v=x&list=l&t=65",
        ),
        ("https://youtu.be/x", "https://youtu.be/x?t=65"),
        ("https://youtu.be/x?si=1&start=3#t=1m5s", "https://youtu.be/x?si=1&t=65"),
        ("https://www.youtube.com/shorts/x", "https://www.youtube.com/shorts/x?t=65"),
        (
            "https://www.youtube.com/live/x?feature=s",
            "https://www.youtube.com/live/x?feature=s&t=65",
        ),
        ("https://www.youtube.com/embed/x?start=9", "https://www.youtube.com/embed/x?start=65"),
        ("https://vimeo.com/7#t=9s", "https://vimeo.com/7#t=65s"),
        ("https://player.vimeo.com/video/7?h=1", "https://player.vimeo.com/video/7?h=1#t=65s"),
        ("https://host/a.mp4?t=9#t=3,8&track=2", "https://host/a.mp4?t=9#track=2&t=65"),
        ("http://host:81/ä b.mp4", "http://host:81/%C3%A4%20b.mp4#t=65"),
        ("https://host/a%20b.mp4", "https://host/a%20b.mp4#t=65"),
        ("https://youtube.com.evil.net/watch?v=x", "https://youtube.com.evil.net/watch?v=x#t=65"),
        ("https://user:secret@host/a.mp4", "https://host/a.mp4#t=65"),
        ("talks/lecture.mp4", "talks/lecture.mp4#t=65"),
        ("talks/50 % & ö#1?.mp4", "talks/50%20%25%20%26%20%C3%B6%231%3F.mp4#t=65"),
        ("//evil.net/a.mp4", "/evil.net/a.mp4#t=65"),
        ("12:30 talk.mp4", "12%3A30%20talk.mp4#t=65"),
    ],
)
def test_a_link_seeks_in_the_form_that_its_site_reads(target, told):
    assert recording_link(target, target, 65.99) == told


@pytest.mark.parametrize(
    "target",
    [
        "javascript:alert(1)",
        " JavaScript:alert(1)",
        "data:text/html,x",
        "file:///etc/passwd",
        "ftp://host/a.mp4",
        "https://",
        "https:///a.mp4",
        "https://[broken/a.mp4",
        'https://host"onclick=x/a.mp4',
    ],
)
def test_an_address_that_is_broken_or_of_another_scheme_gives_way_to_the_file(target):
    assert recording_link(target, "talks/a.mp4", 65) == "talks/a.mp4#t=65"


def test_a_file_named_like_a_scheme_is_no_address():
    assert file_link("javascript:alert(1)", "t=1") == "javascript%3Aalert%281%29#t=1"
    assert recording_link(None, "javascript:alert(1)", 1) == "javascript%3Aalert%281%29#t=1"


def test_seconds_are_rounded_down_and_never_negative():
    assert recording_link(None, "a.mp4", 0.99) == "a.mp4#t=0"
    assert recording_link(None, "a.mp4", -3.0) == "a.mp4#t=0"


@pytest.mark.parametrize(
    ("link", "told"),
    [
        ("talks/50%20%25.mp4#t=65", "talks/50%20%25.mp4#t=80"),
        ("https://youtu.be/x?t=65", "https://youtu.be/x?t=80"),
        ("https://vimeo.com/7#t=65s", "https://vimeo.com/7#t=80s"),
    ],
)
def test_a_link_is_moved_to_another_second(link, told):
    assert move_link(link, 80.5) == told


def test_a_page_is_linked_in_pdfs_alone():
    assert page_link("papers/a b.PDF", 4) == "papers/a%20b.PDF#page=4"
    assert page_link("slides.pptx", 4) is None
