"""Training costs published in the paper: Tables 2 and 6."""

from collections.abc import Mapping, Sequence
from typing import Any

from etils import epy

with epy.lazy_imports():
  from vit_jax.models import variants
  from vit_jax.models import vit

RESOLUTION = 224
DEVICE = 'TPUv3'

# arXiv 2010.11929, table 6: (variant, epochs on JFT-300M, exaFLOPs).
#
# The two rows of R50+L/16 contradict each other: 7 epochs cost more than half
# of 14. Our count agrees with the latter.
TABLE_6: Sequence[tuple[str, int, float]] = (
    ('B/32', 7, 55), ('B/16', 7, 224), ('L/32', 7, 196), ('L/16', 7, 783),
    ('L/16', 14, 1567), ('H/14', 14, 4262),
    ('R50x1', 7, 50), ('R50x2', 7, 199), ('R101x1', 7, 96), ('R152x1', 7, 141),
    ('R152x2', 7, 563), ('R152x2', 14, 1126), ('R200x3', 14, 3306),
    ('R50+B/32', 7, 106), ('R50+B/16', 7, 274), ('R50+L/32', 7, 246),
    ('R50+L/16', 7, 859), ('R50+L/16', 14, 1668),
)

# arXiv 2010.11929, table 2: (variant, data, epochs, core-days).
#
# L/16: the longer schedules of Table 3, which imply the same utilisation on
# both datasets. BiT-L: epochs from arXiv 1912.11370, section 3.2.
TABLE_2: Sequence[tuple[str, str, int, float]] = (
    ('H/14', 'jft', 14, 2_500),
    ('L/16', 'jft', 14, 680),
    ('L/16', 'imagenet21k', 90, 230),
    ('R152x4', 'jft', 40, 9_900),
)


def variant(config: Any) -> str:
  """Returns the variant that a run trains as the paper does; '' if another."""
  name = config.model.variant
  if not name or config.objective.name != 'supervised':
    return ''
  return name if all(
      getattr(config.model, key) in (value, (value, value))
      for key, value in variants.section(name).items()
      if key in vit.ViTConfig.dimensions) else ''


def find(config: Any, *, dataset: str, epochs: float) -> dict[str, Any]:
  """Returns the cost that the paper reports for a pre-training run.

  Args:
    config: config of the run.
    dataset: training dataset; its version is ignored.
    epochs: epochs over the dataset.

  Returns:
    `paper_exaflops` from Table 6 and `paper_core_days` (TPUv3) from Table 2;
    None if the table has no such row.
  """
  def look_up(rows: Mapping[tuple[str, str, int], float]) -> float | None:
    if (abs(epochs - round(epochs)) >= 0.01
        or config.data.size != (RESOLUTION, RESOLUTION)):
      return None
    return rows.get((variant(config), dataset.partition(':')[0], round(epochs)))

  return {
      'paper_exaflops': look_up({(v, 'jft', e): x for v, e, x in TABLE_6}),
      'paper_core_days': look_up(
          {(v, d, e): days for v, d, e, days in TABLE_2})}
