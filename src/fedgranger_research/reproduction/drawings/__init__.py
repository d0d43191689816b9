"""Pictures of the paper's synthetic experiments (matplotlib, extra `plot`)."""

from fedgranger_research.reproduction.drawings.aleatoric import draw_aleatoric
from fedgranger_research.reproduction.drawings.communicated import draw_communicated
from fedgranger_research.reproduction.drawings.cross_covariances import draw_cross_covariances
from fedgranger_research.reproduction.drawings.epistemic import draw_epistemic
from fedgranger_research.reproduction.drawings.hai_stress import draw_hai_stress
from fedgranger_research.reproduction.drawings.l2_error import draw_l2_error
from fedgranger_research.reproduction.drawings.qq import draw_qq
from fedgranger_research.reproduction.drawings.scalability import draw_scalability

__all__ = ["DRAWINGS"]

DRAWINGS = {
    "aleatoric": draw_aleatoric,
    "epistemic": draw_epistemic,
    "cross-covariances": draw_cross_covariances,
    "communicated": draw_communicated,
    "l2-error": draw_l2_error,
    "qq": draw_qq,
    "hai-stress": draw_hai_stress,
    "scalability": draw_scalability,
}
"""(folder, table) -> files NAME.png and NAME.svg there."""
