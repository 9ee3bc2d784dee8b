"""Line plots as SVG, without a library: logarithmic axes, a few series, and figures that can be read off."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

Point = tuple[float, float]

_WIDTH, _HEIGHT = 640, 360
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 20, 40, 50
_COLORS = ("#3f51b5", "#c2410c", "#15803d", "#7e22ce", "#0e7490")


@dataclass(frozen=True, slots=True)
class Series:
    """One line: its name, and its points in the order of x."""

    name: str
    points: Sequence[Point]


def plot(title: str, x: str, y: str, series: Sequence[Series]) -> str:
    """An SVG with all series. Both axes are logarithmic, so a straight line of slope 1 is a cost per item."""
    points = [point for one in series for point in one.points]
    horizontal = _Axis(min(p[0] for p in points), max(p[0] for p in points), _LEFT, _WIDTH - _RIGHT)
    vertical = _Axis(min(p[1] for p in points), max(p[1] for p in points), _HEIGHT - _BOTTOM, _TOP)
    size = f'viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="system-ui, sans-serif" font-size="12"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {size}>',
        f"<title>{escape(title)}</title>",
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
        f'<text x="{_LEFT}" y="20" font-size="14" font-weight="600" fill="#111111">{escape(title)}</text>',
    ]
    for value in horizontal.ticks():
        at = horizontal(value)
        parts.append(f'<line x1="{at:.1f}" y1="{_TOP}" x2="{at:.1f}" y2="{_HEIGHT - _BOTTOM}" stroke="#e5e5e5"/>')
        parts.append(_text(at, _HEIGHT - _BOTTOM + 18, figure(value), "middle"))
    for value in vertical.ticks():
        at = vertical(value)
        parts.append(f'<line x1="{_LEFT}" y1="{at:.1f}" x2="{_WIDTH - _RIGHT}" y2="{at:.1f}" stroke="#e5e5e5"/>')
        parts.append(_text(_LEFT - 8, at + 4, figure(value), "end"))
    parts.append(_text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 10, x, "middle"))
    parts.append(_text(_WIDTH - _RIGHT, 20, y, "end"))
    for number, one in enumerate(series):
        color = _COLORS[number % len(_COLORS)]
        places = [(horizontal(a), vertical(b)) for a, b in one.points]
        line = " ".join(f"{a:.1f},{b:.1f}" for a, b in places)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="2"/>')
        for (a, b), (left, right) in zip(places, one.points, strict=True):
            parts.append(
                f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3.5" fill="{color}">'
                f"<title>{escape(one.name)}: {figure(right)} at {figure(left)}</title></circle>"
            )
        parts.append(f'<rect x="{_LEFT + 10}" y="{_TOP + 8 + 18 * number}" width="12" height="3" fill="{color}"/>')
        parts.append(_text(_LEFT + 28, _TOP + 13 + 18 * number, one.name, "start"))
    return "\n".join([*parts, "</svg>", ""])


def figure(value: float) -> str:
    """A number with as many digits as help."""
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def growth(points: Sequence[Point]) -> list[float]:
    """The exponent of the growth between each two points: 1 is a constant cost per item, 0 a constant cost."""
    return [math.log(b[1] / a[1]) / math.log(b[0] / a[0]) for a, b in itertools.pairwise(points)]


def bend(points: Sequence[Point], least: float = 0.4) -> float | None:
    """Where the growth changes most, if it changes by at least that much."""
    slopes = growth(points)
    changes = [abs(after - before) for before, after in itertools.pairwise(slopes)]
    if not changes or max(changes) < least:
        return None
    return points[changes.index(max(changes)) + 1][0]


@dataclass(frozen=True, slots=True)
class _Axis:
    """A logarithmic axis, from values to places."""

    low: float
    high: float
    start: float
    end: float

    def _range(self) -> tuple[float, float]:
        low, high = math.log10(self.low), math.log10(self.high)
        pad = max((high - low) * 0.05, 0.05)
        return low - pad, high + pad

    def __call__(self, value: float) -> float:
        low, high = self._range()
        return self.start + (math.log10(value) - low) / (high - low) * (self.end - self.start)

    def ticks(self) -> list[float]:
        low, high = self._range()
        steps = (1, 3) if high - low > 1.5 else (1, 2, 5)
        tens = range(math.floor(low), math.ceil(high) + 1)
        return [step * 10.0**ten for ten in tens for step in steps if low <= math.log10(step * 10.0**ten) <= high]


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="#444444">{escape(text)}</text>'
