// SVG elements as text.
#include "demo/svg.h"

#include <fmt/core.h>

namespace qkvfuse::cli {
namespace {

std::string Escape(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    escaped += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : std::string(1, c);
  }
  return escaped;
}

std::string BoxText(const Box& box) {
  return fmt::format("x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\"", box.x, box.y,
                     box.width, box.height);
}

}  // namespace

void Svg::Text(double x, double y, const std::string& text, const TextStyle& style) {
  body_ += fmt::format(
      "<text xml:space=\"preserve\" x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"{}\" fill=\"{}\" "
      "text-anchor=\"{}\" font-weight=\"{}\" font-family=\"{}\">{}</text>\n",
      x, y, style.size, style.fill, style.anchor, style.weight, style.family, Escape(text));
}

void Svg::FilledBox(const Box& box, const std::string& colour) {
  body_ += fmt::format("<rect {} fill=\"{}\"/>\n", BoxText(box), colour);
}

void Svg::Outline(const Box& box, const std::string& colour, double width) {
  body_ += fmt::format("<rect {} fill=\"none\" stroke=\"{}\" stroke-width=\"{}\"/>\n", BoxText(box),
                       colour, width);
}

void Svg::HorizontalLine(double x1, double x2, double y, const std::string& colour, double width) {
  FilledBox({x1, y - width / 2, x2 - x1, width}, colour);
}

void Svg::VerticalLine(double x, double y1, double y2, const std::string& colour, double width) {
  FilledBox({x - width / 2, y1, width, y2 - y1}, colour);
}

std::string Svg::Finish(double width, double height) const {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
      "width=\"{0:.0f}\" height=\"{1:.0f}\">\n"
      "<rect width=\"{0:.0f}\" height=\"{1:.0f}\" fill=\"#ffffff\"/>\n{2}</svg>\n",
      width, height, body_);
}

}  // namespace qkvfuse::cli
