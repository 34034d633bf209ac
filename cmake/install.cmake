# What is installed: both libraries, the one header, the pkg-config and CMake packages, manual pages, the command and
# the daemon, the SQL of the stores. Whatever does not exist yet is left out.
include(CMakePackageConfigHelpers)

if(TARGET holdfast)
    install(TARGETS holdfast holdfast_static EXPORT holdfast
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
    install(FILES core/include/holdfast.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

    # Both packages find their files from where they lie themselves, so that a staged or moved tree works.
    set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/holdfast)
    install(EXPORT holdfast NAMESPACE holdfast:: FILE holdfastTargets.cmake DESTINATION ${package_dir})
    configure_package_config_file(cmake/holdfastConfig.cmake.in ${PROJECT_BINARY_DIR}/holdfastConfig.cmake
        INSTALL_DESTINATION ${package_dir})
    write_basic_package_version_file(${PROJECT_BINARY_DIR}/holdfastConfigVersion.cmake COMPATIBILITY SameMinorVersion)
    install(FILES ${PROJECT_BINARY_DIR}/holdfastConfig.cmake ${PROJECT_BINARY_DIR}/holdfastConfigVersion.cmake
        DESTINATION ${package_dir})

    file(RELATIVE_PATH pc_to_prefix /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
    configure_file(cmake/holdfast.pc.in ${PROJECT_BINARY_DIR}/holdfast.pc @ONLY)
    install(FILES ${PROJECT_BINARY_DIR}/holdfast.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endif()

if(TARGET holdfast_cmd)
    install(TARGETS holdfast_cmd DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
if(TARGET holdfastd)
    install(TARGETS holdfastd DESTINATION ${CMAKE_INSTALL_SBINDIR})
endif()

foreach(section IN ITEMS 1 3 7 8)
    file(GLOB pages CONFIGURE_DEPENDS core/man/*.${section} tools/man/*.${section})
    if(pages)
        install(FILES ${pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section})
    endif()
endforeach()

file(GLOB schema CONFIGURE_DEPENDS persist/schema/*.sql)
if(schema)
    install(FILES ${schema} DESTINATION ${CMAKE_INSTALL_DATADIR}/holdfast/schema)
endif()
