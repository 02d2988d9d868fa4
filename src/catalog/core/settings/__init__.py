"""Every setting with its default, its bounds, and the origin of its value.

The environment takes precedence over a TOML file (``IDX_CONFIG`` or ``catalog.toml`` in the home
folder), that over a preset, that over the defaults.
"""

from catalog.core.settings.loading import LoadedSettings as LoadedSettings
from catalog.core.settings.loading import get_settings as get_settings
from catalog.core.settings.loading import load_settings as load_settings
from catalog.core.settings.rag import IngestSettings as IngestSettings
from catalog.core.settings.rag import QdrantSettings as QdrantSettings
from catalog.core.settings.rag import RAGv2Settings as RAGv2Settings
from catalog.core.settings.sections import AnswerSettings as AnswerSettings
from catalog.core.settings.sections import CollectionSettings as CollectionSettings
from catalog.core.settings.sections import EmbeddingSettings as EmbeddingSettings
from catalog.core.settings.sections import LLMSettings as LLMSettings
from catalog.core.settings.sections import ServeSettings as ServeSettings
from catalog.core.settings.sections import Settings as Settings
