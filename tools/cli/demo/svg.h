// A small writer of SVG elements; coordinates in pixels.
#pragma once

#include <string>

namespace qkvfuse::cli {

struct TextStyle {
  double size = 12;
  const char* fill = "#1f2933";
  const char* anchor = "start";
  const char* weight = "normal";
  const char* family = "Helvetica, Arial, 'DejaVu Sans', sans-serif";
};

struct Box {
  double x = 0;
  double y = 0;
  double width = 0;
  double height = 0;
};

class Svg {
 public:
  void Text(double x, double y, const std::string& text, const TextStyle& style = {});
  void FilledBox(const Box& box, const std::string& colour);
  void Outline(const Box& box, const std::string& colour, double width);
  void HorizontalLine(double x1, double x2, double y, const std::string& colour, double width);
  void VerticalLine(double x, double y1, double y2, const std::string& colour, double width);

  /// The whole document, on white.
  [[nodiscard]] std::string Finish(double width, double height) const;

 private:
  std::string body_;
};

}  // namespace qkvfuse::cli
