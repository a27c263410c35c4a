// Text tables for people: columns as wide as their widest cell, rules between groups of rows.
#pragma once

#include <string>
#include <vector>

namespace qkvfuse::cli {

class Table {
 public:
  enum class Align { kLeft, kRight };
  struct Column {
    std::string title;  // may have two lines, separated by a newline
    Align align = Align::kRight;
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  /// One cell per column.
  void AddRow(std::vector<std::string> cells);
  /// A rule before the next row.
  void EndGroup();

  [[nodiscard]] std::string Render() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;  // an empty row is a rule
};

}  // namespace qkvfuse::cli
