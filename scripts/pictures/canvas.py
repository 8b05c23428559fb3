"""A canvas for SVG: boxes, arrows and text, in colours for light and dark pages.

A picture has a background of its own, so that it can be read on any page.
"""

from __future__ import annotations

from html import escape
from typing import Final

STYLE: Final = """
    .paper { fill: #ffffff; stroke: #d0d7de; }
    .box { fill: #f6f8fa; stroke: #8c959f; }
    .door { fill: #ddf4ff; stroke: #0969da; }
    .log { fill: #fff8c5; stroke: #9a6700; }
    .out { fill: #dafbe1; stroke: #1a7f37; }
    .disk { fill: #ffebe9; stroke: #cf222e; }
    .group { fill: none; stroke: #8c959f; stroke-dasharray: 5 4; }
    .line { fill: none; stroke: #57606a; stroke-width: 1.6; }
    .reply { fill: none; stroke: #1a7f37; stroke-width: 1.6; }
    .life { fill: none; stroke: #d0d7de; stroke-width: 1.4; }
    .head { fill: #57606a; }
    .reply-head { fill: #1a7f37; }
    text { fill: #1f2328; font-family: system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; }
    .title { font-size: 15px; font-weight: 600; }
    .label { font-size: 13px; }
    .small { font-size: 12px; fill: #57606a; }
    @media (prefers-color-scheme: dark) {
      .paper { fill: #0d1117; stroke: #30363d; }
      .box { fill: #161b22; stroke: #6e7681; }
      .door { fill: #0c2d4d; stroke: #58a6ff; }
      .log { fill: #3b2e08; stroke: #d29922; }
      .out { fill: #0f2f1a; stroke: #3fb950; }
      .disk { fill: #3d1214; stroke: #f85149; }
      .line { stroke: #8b949e; }
      .reply { stroke: #3fb950; }
      .life { stroke: #30363d; }
      .head { fill: #8b949e; }
      .reply-head { fill: #3fb950; }
      text { fill: #e6edf3; }
      .small { fill: #9aa4af; }
    }
"""


class Canvas:
    """One picture. Coordinates are pixels from the top left."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self._size = width, height
        self._title = title
        self._parts: list[str] = []

    def box(self, x: float, y: float, width: float, height: float, *lines: str, kind: str = "box") -> None:
        """A box with a title in its middle, and smaller lines below it."""
        self._parts.append(f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="7"/>')
        top = y + height / 2 + 5 - 8.5 * (len(lines) - 1)
        for number, line in enumerate(lines):
            self.text(x + width / 2, top + 17 * number, line, "title" if not number else "small", "middle")

    def group(self, x: float, y: float, width: float, height: float, title: str) -> None:
        """A dashed frame around what belongs together."""
        self._parts.append(f'<rect class="group" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="9"/>')
        self.text(x + 12, y + 19, title, "small")

    def text(self, x: float, y: float, text: str, kind: str = "label", anchor: str = "start") -> None:
        self._parts.append(f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(text)}</text>')

    def arrow(self, *points: tuple[float, float], kind: str = "line", dashed: bool = False) -> None:
        """A line along these points, with a head at the last one."""
        (before_x, before_y), (x, y) = points[-2:]
        length = ((x - before_x) ** 2 + (y - before_y) ** 2) ** 0.5
        across, along = (x - before_x) / length, (y - before_y) / length
        base_x, base_y = x - 9 * across, y - 9 * along
        path = " L ".join(f"{px:g} {py:g}" for px, py in (*points[:-1], (round(base_x, 1), round(base_y, 1))))
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self._parts.append(f'<path class="{kind}" d="M {path}"{dash}/>')
        corners = ((x, y), (base_x - 4.5 * along, base_y + 4.5 * across), (base_x + 4.5 * along, base_y - 4.5 * across))
        tip = " ".join(f"{px:.1f},{py:.1f}" for px, py in corners)
        self._parts.append(f'<polygon class="{"reply-head" if kind == "reply" else "head"}" points="{tip}"/>')

    def line(self, x: float, top: float, bottom: float) -> None:
        """A lifeline."""
        self._parts.append(f'<path class="life" d="M {x:g} {top:g} L {x:g} {bottom:g}"/>')

    def rule(self, left: float, right: float, y: float) -> None:
        """A line across."""
        self._parts.append(f'<path class="life" d="M {left:g} {y:g} L {right:g} {y:g}"/>')

    def svg(self) -> str:
        width, height = self._size
        paper = f'<rect class="paper" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="10"/>'
        parts = "\n  ".join((paper, *self._parts))
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            f'role="img">\n  <title>{escape(self._title)}</title>\n  <style>{STYLE}  </style>\n'
            f"  {parts}\n</svg>\n"
        )
