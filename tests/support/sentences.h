// The sentences of all refusals, whole: rows of the contract tables name only some words, and a
// check that is left out often hides behind a later one that names the same argument.
#pragma once

#include <string>

namespace qkvfuse::testing {

/// Fails the current test unless tests/support/sentences.txt has this sentence for the row of it.
/// With QKVFUSE_RECORD_SENTENCES naming a file, the line for the list is appended to that instead.
void ExpectRecordedSentence(const std::string& row, std::string sentence);

}  // namespace qkvfuse::testing
