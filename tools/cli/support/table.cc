// Text tables: column widths, alignment, rules.
#include "support/table.h"

#include <fmt/core.h>

#include <algorithm>
#include <cassert>
#include <utility>

namespace qkvfuse::cli {
namespace {

constexpr const char* kGap = "  ";

// First or second line of a title; titles of one line stand on the second.
std::string TitleLine(const std::string& title, int line) {
  const size_t newline = title.find('\n');
  if (newline == std::string::npos) return line == 0 ? "" : title;
  return line == 0 ? title.substr(0, newline) : title.substr(newline + 1);
}

std::string Pad(const std::string& text, size_t width, Table::Align align) {
  return align == Table::Align::kLeft ? fmt::format("{:<{}}", text, width)
                                      : fmt::format("{:>{}}", text, width);
}

std::string TrimRight(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

}  // namespace

void Table::AddRow(std::vector<std::string> cells) {
  assert(cells.size() == columns_.size());
  rows_.push_back(std::move(cells));
}

void Table::EndGroup() {
  if (!rows_.empty()) rows_.emplace_back();
}

std::string Table::Render() const {
  std::vector<size_t> widths(columns_.size());
  for (size_t c = 0; c < columns_.size(); ++c) {
    const std::string& title = columns_[c].title;
    widths[c] = std::max(TitleLine(title, 0).size(), TitleLine(title, 1).size());
    for (const auto& row : rows_) {
      if (!row.empty()) widths[c] = std::max(widths[c], row[c].size());
    }
  }
  const auto line = [&](auto cell) {
    std::string text;
    for (size_t c = 0; c < columns_.size(); ++c) {
      if (c > 0) text += kGap;
      text += Pad(cell(c), widths[c], columns_[c].align);
    }
    return TrimRight(text) + "\n";
  };
  const std::string rule = line([&](size_t c) { return std::string(widths[c], '-'); });
  std::string text;
  const std::string upper = line([&](size_t c) { return TitleLine(columns_[c].title, 0); });
  if (upper != "\n") text += upper;
  text += line([&](size_t c) { return TitleLine(columns_[c].title, 1); }) + rule;
  for (size_t r = 0; r < rows_.size(); ++r) {
    if (!rows_[r].empty()) {
      text += line([&](size_t c) { return rows_[r][c]; });
    } else if (r + 1 < rows_.size()) {
      text += rule;
    }
  }
  return text;
}

}  // namespace qkvfuse::cli
