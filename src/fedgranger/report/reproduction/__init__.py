"""Pictures of the paper's synthetic experiments (matplotlib, extra `plot`)."""

from fedgranger.report.reproduction.aleatoric import draw_aleatoric
from fedgranger.report.reproduction.communicated import draw_communicated
from fedgranger.report.reproduction.cross_covariances import draw_cross_covariances
from fedgranger.report.reproduction.epistemic import draw_epistemic
from fedgranger.report.reproduction.hai_stress import draw_hai_stress
from fedgranger.report.reproduction.l2_error import draw_l2_error
from fedgranger.report.reproduction.qq import draw_qq
from fedgranger.report.reproduction.scalability import draw_scalability

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
