# Installed tree: headers, libraries, command line, CMake package and pkg-config files. Everything
# is relocatable: paths are relative to the files that name them.
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/qkvfuse)
set(pkg_config_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
set(acl_include_dir ${CMAKE_INSTALL_INCLUDEDIR}/qkvfuse-acl)

set_target_properties(qkvfuse_shared PROPERTIES EXPORT_NAME qkvfuse)
set_target_properties(qkvfuse_aclnn_shared PROPERTIES EXPORT_NAME aclnn INSTALL_RPATH "$ORIGIN")
set_target_properties(qkvfuse_aclnn_static PROPERTIES EXPORT_NAME aclnn_static)

# Two export sets, because only users of the static libraries need the packages they link to.
install(TARGETS qkvfuse_shared qkvfuse_aclnn_shared EXPORT qkvfuse-shared-targets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS qkvfuse_static qkvfuse_aclnn_static EXPORT qkvfuse-static-targets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
foreach(kind shared static)
  install(EXPORT qkvfuse-${kind}-targets NAMESPACE qkvfuse:: DESTINATION ${package_dir})
endforeach()

install(DIRECTORY include/qkvfuse DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY include/qkvfuse-acl/ DESTINATION ${acl_include_dir})
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
if(QKVFUSE_BUILD_TOOLS)  # the command line has recorded activations of Gemma built in
  install(FILES cases/recorded/NOTICE DESTINATION ${CMAKE_INSTALL_DOCDIR})
endif()

if(QKVFUSE_BUILD_TOOLS)
  file(RELATIVE_PATH libdir_from_bindir
    ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
  set_target_properties(qkvfuse_cli PROPERTIES INSTALL_RPATH "$ORIGIN/${libdir_from_bindir}")
  install(TARGETS qkvfuse_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

configure_package_config_file(cmake/qkvfuse-config.cmake.in
  ${PROJECT_BINARY_DIR}/qkvfuse-config.cmake INSTALL_DESTINATION ${package_dir})
# Before 1.0 a minor version may change the C++ interface.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/qkvfuse-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/qkvfuse-config.cmake
  ${PROJECT_BINARY_DIR}/qkvfuse-config-version.cmake DESTINATION ${package_dir})

file(RELATIVE_PATH prefix_from_pkg_config_dir
  ${CMAKE_INSTALL_PREFIX}/${pkg_config_dir} ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" prefix_from_pkg_config_dir "${prefix_from_pkg_config_dir}")
if(QKVFUSE_OPENMP AND OpenMP_CXX_FOUND)
  string(REPLACE ";" " " static_link_flags "${OpenMP_CXX_FLAGS}")
endif()
foreach(name qkvfuse qkvfuse-aclnn)
  configure_file(cmake/${name}.pc.in ${PROJECT_BINARY_DIR}/${name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${name}.pc DESTINATION ${pkg_config_dir})
endforeach()
