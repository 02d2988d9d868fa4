"""Artifacts: documents in sections, each searched for, cited, or marked as without evidence."""

import pytest

from answers.conftest import WritingLLM, serve
from catalog.answers.generating import SCHEMAS, generate_artifact
from catalog.answers.prompting import find_misses, split_sections
from catalog.core.errors import ArtifactSchemaError, ConfigError, InputError, LLMError
from catalog.core.params import GenerateParams
from tables import table

RIGHT = "Customers may cancel within 14 days of the order [1]."
TOPIC = "the cancellation of an order by customers"


def blueprint(**bodies):
    headings = SCHEMAS["blueprint"]
    return "\n\n".join(
        f"{one}\n\n{bodies.get(one.lstrip('# ').split()[0].lower(), 'No evidence.')}"
        for one in headings
    )


@pytest.fixture
def made(project):
    """Generates with a model that writes these replies, or with none."""

    def make(*replies, kind="blueprint", topic=TOPIC, answers=None, **params):
        llm = WritingLLM(replies=list(replies), prompts=[], context=8000) if replies else None
        service = serve(project, llm, **(answers or {}))
        try:
            artifact = generate_artifact(service, GenerateParams(kind, topic=topic, **params))
        finally:
            service.close()
        return artifact, [] if llm is None else llm.prompts

    return make


def section(artifact, name):
    return next(one for one in artifact.sections if one.heading.endswith(name))


def test_each_section_has_a_search_of_its_own_under_the_same_role(made):
    artifact, _ = made(blueprint(), role="guest")
    names = [stage.name for stage in artifact.stages]
    assert [name for name in names if name.startswith("search")] == [
        f"search {heading}" for heading in ("topic", *SCHEMAS["blueprint"])
    ]
    assert {one.path for one in artifact.results} <= {"cancel.md"}
    hidden, _ = made("never", topic="the salary of a director", role="guest")
    assert hidden.abstained
    assert "9000" not in hidden.markdown


def test_nothing_related_is_no_evidence_and_no_model_is_asked(made):
    artifact, prompts = made("never", topic="the capital of Mongolia")
    assert artifact.abstained
    assert prompts == []
    assert artifact.markdown.startswith("No evidence in the documents: ")
    assert artifact.markdown.count("\n") == 0
    assert all(one.reason for one in artifact.sections)


def test_a_model_writes_all_sections_at_once_and_each_sentence_is_checked(made):
    reply = blueprint(
        overview=f"{RIGHT} A refund takes 50 working days [1].", risks="It may rain [1]."
    )
    artifact, prompts = made(reply)
    assert len(prompts) == 1
    assert "You write a blueprint" in prompts[0]
    assert "Question: Generate a blueprint on: the cancellation" in prompts[0]
    overview = section(artifact, "Overview")
    assert [one.supported for one in overview.sentences] == [True, False]
    assert "50 working days. [1] [unsupported]" in overview.text
    assert section(artifact, "Risks").sentences == ()  # nothing in it is supported
    assert section(artifact, "Risks").text.startswith(
        "## Risks\n\n*No sentence of the language model"
    )
    assert section(artifact, "Goals").text.startswith("## Goals\n\n*No evidence in the documents: ")
    assert artifact.model == "writer"
    assert "- [1] [source: Cancellation, line" in artifact.markdown
    artifact, _ = made(reply, answers={"unsupported": "drop"})
    assert len(section(artifact, "Overview").sentences) == 1
    assert any(note.startswith("unsupported sentences left out: 2") for note in artifact.notes)
    artifact, _ = made(blueprint())  # a model that finds nothing is believed
    assert artifact.abstained
    assert artifact.markdown.startswith("No evidence in the documents: the language model found")


def test_markdown_that_misses_the_schema_is_repaired_once(made):
    wrong = f"# Overview\n\n{RIGHT}\n\n## Summary\n\nNo."
    artifact, prompts = made(wrong, blueprint(overview=RIGHT))
    assert len(prompts) == 2
    assert "asked for (its headings: # Overview, ## Summary)" in prompts[1]
    assert section(artifact, "Overview").sentences[0].supported


def test_markdown_that_misses_it_again_is_an_error_with_the_draft(made):
    with pytest.raises(ArtifactSchemaError, match="wanted: # Overview, ## Goals") as error:
        made("# Overview\n\nSo.", "# Overview\n\nAnd so.")
    assert error.value.draft == "# Overview\n\nAnd so."
    with pytest.raises(ArtifactSchemaError) as error:  # a draft that is kept opens nothing
        made("So.", "So <b onclick=x()>it ![is](https:\\\\evil.example) <svg")
    assert error.value.draft == "So it is < svg"


def test_what_cannot_be_generated_is_an_error(made):
    with pytest.raises(ConfigError, match="IDX_LLM__PROVIDER"):
        made()
    with pytest.raises(InputError, match="topic is empty"):
        made(topic=" ")
    with pytest.raises(LLMError, match="did not answer within"):
        made([TimeoutError()])


@table("text, misses")
def test_a_schema_is_its_headings_once_each_in_order(text, misses):
    assert find_misses([name for name, _ in split_sections(text)], ["# A", "## B"]) == misses


@table("written, note")
def test_a_section_without_a_supported_sentence_says_so(made, written, note):
    artifact, _ = made(blueprint(overview=written))
    assert artifact.abstained
    assert note in section(artifact, "Overview").text.lower()


def test_an_agent_writes_its_own_kind_at_a_temperature_of_artifacts(project, tmp_path):
    heard = {}

    class Hearing(WritingLLM):
        def stream(self, messages, **options):
            heard.update(options)
            yield from super().stream(messages, **options)

    (tmp_path / "warm.toml").write_text('persona = "You plan."\ntemperature = 0.9\n')
    (tmp_path / "plans.toml").write_text('output = "build-plan"')
    llm = Hearing(replies=[blueprint(overview=RIGHT)], prompts=[], context=8000)
    service = serve(project, llm, agents=tmp_path)
    try:
        generate_artifact(service, GenerateParams("blueprint", topic=TOPIC, agent="warm"))
        with pytest.raises(InputError, match="'plans'"):
            generate_artifact(service, GenerateParams("blueprint", topic=TOPIC, agent="plans"))
        with pytest.raises(InputError, match="kinds: blueprint, pdr"):
            generate_artifact(service, GenerateParams("poem", topic=TOPIC))
    finally:
        service.close()
    assert heard == {"temperature": 0.4, "max_tokens": 1600}
    assert llm.prompts[0].startswith("system: You plan.\n\nYou write a blueprint")


@table("form, mark")
def test_citations_have_the_form_of_the_setting(made, form, mark):
    artifact, _ = made(blueprint(overview=RIGHT), answers={"citations": form})
    assert f"14 days of the order. {mark}" in section(artifact, "Overview").text
